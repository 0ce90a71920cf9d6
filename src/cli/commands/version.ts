import { SDK_VERSION } from "../../version.js";
import type { CommandModule } from "../context.js";

export const define: CommandModule["define"] = (command, { stdout }) => {
  command.action(() => {
    stdout.write(`tinkerts ${SDK_VERSION}\n`);
  });
};
