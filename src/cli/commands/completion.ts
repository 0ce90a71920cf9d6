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
    .addHelpText(
      "after",
      `
Prints a script that completes commands, options and their values. To have it in every new shell:

  bash  echo 'source <(tinkerts completion bash)' >> ~/.bashrc
  zsh   echo 'source <(tinkerts completion zsh)' >> ~/.zshrc
  fish  tinkerts completion fish > ~/.config/fish/completions/tinkerts.fish`,
    )
    .action(async (shell: keyof typeof SCRIPTS) => {
      const { createCompleteProgram } = await import("../program.js");
      const program = await createCompleteProgram(context);
      context.stdout.write(SCRIPTS[shell](describeProgram(program)));
    });
};
