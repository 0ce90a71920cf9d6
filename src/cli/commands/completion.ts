import { Argument } from "commander";
import { bashCompletion } from "../completion/bash.js";
import { describeProgram } from "../completion/describe.js";
import { fishCompletion } from "../completion/fish.js";
import { zshCompletion } from "../completion/zsh.js";
import type { CommandModule } from "../context.js";

const SCRIPTS = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion } as const;

export const define: CommandModule["define"] = (command, context) => {
  command
    .addArgument(new Argument("<shell>", "the shell you use").choices(Object.keys(SCRIPTS)))
    .action(async (shell: keyof typeof SCRIPTS) => {
      const { createCompleteProgram } = await import("../program.js");
      const program = await createCompleteProgram(context);
      context.stdout.write(SCRIPTS[shell](describeProgram(program)));
    });
};
