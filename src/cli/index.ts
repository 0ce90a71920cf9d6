/** The `tinkerts` command: a lazy table of commands, one file each. */
export { runCli } from "./run.js";
