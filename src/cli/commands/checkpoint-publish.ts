import type { CommandModule } from "../context.js";
import { found } from "../failure.js";
import { printDone } from "../output/index.js";
import { PATH_ADVICE, PATH_ARGUMENT } from "./checkpoint-path.js";

export const define: CommandModule["define"] = (command, context) => {
  command.argument(...PATH_ARGUMENT).action(async (path: string) => {
    const rest = await context.restClient();
    await found(context, rest.publishCheckpoint(path), `checkpoint ${path}`, PATH_ADVICE);
    printDone(context, `everybody can read ${path} now`, { tinkerPath: path, public: true });
  });
};
