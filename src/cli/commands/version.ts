import { SDK_VERSION } from "../../version.js";
import type { CommandModule } from "../context.js";

export const define: CommandModule["define"] = (command, context) => {
  command.action(async () => {
    if (context.globals().format === "table") {
      context.stdout.write(`tinkerts ${SDK_VERSION}\n`);
      return;
    }
    const { printItem } = await import("../output/index.js");
    printItem(context, { version: SDK_VERSION }, [{ name: "version" }]);
  });
};
