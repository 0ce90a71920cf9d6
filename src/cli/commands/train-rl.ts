import { planReinforcement, trainReinforcement } from "../../cookbook/reinforcement/index.js";
import { REINFORCEMENT_OPTIONS } from "../../cookbook/reinforcement/options.js";
import type { CommandContext, CommandModule } from "../context.js";
import { defaultExportOf } from "../own-module.js";
import { type AgentFlags, agentSource } from "../train/agent-source.js";
import { type EnvironmentFile, environmentOf } from "../train/environment-file.js";
import { runTrainingCommand } from "../train/run-command.js";
import {
  addTrainingFlags,
  modelOption,
  type RunCommandOptions,
  sampleGroupsOption,
  trainingOptions,
} from "../train/run-options.js";
import { showingRollouts } from "../train/show-rollouts.js";

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument(
      "<file>",
      "a module that exports problems and a reward as its default, or environments; with --agent, a file of problems",
    )
    .addOption(modelOption())
    .option(
      "--agent <command>",
      "train this program as it is, with problems from the file, one per line as JSON",
    )
    .option("--reward <file>", "module that exports the reward of an agent's episode as its default")
    .addOption(sampleGroupsOption());
  addTrainingFlags(command, REINFORCEMENT_OPTIONS).action(
    (file: string, options: RunCommandOptions & AgentFlags) => train(file, options, context),
  );
};

async function train(
  file: string,
  options: RunCommandOptions & AgentFlags,
  context: CommandContext,
): Promise<void> {
  const isAgent = options.agent !== undefined || options.reward !== undefined;
  // Flags on the command line override the file's options.
  const settings = {
    ...(isAgent ? await agentSource(file, options) : environmentOf(await defaultExportOf(file), file)),
    ...trainingOptions(REINFORCEMENT_OPTIONS, options),
  } as EnvironmentFile;
  await runTrainingCommand(
    {
      file,
      plan: (place) => planReinforcement({ ...settings, ...place }, { sampleGroups: options.sampleGroups }),
      train: (place) => trainReinforcement({ ...settings, ...showingRollouts(place) }),
    },
    options,
    context,
  );
}
