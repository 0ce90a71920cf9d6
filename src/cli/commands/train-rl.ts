import type { GroupSource, Problem } from "../../cookbook/environments/index.js";
import {
  planReinforcement,
  type ReinforcementSettings,
  type SourceOptions,
  trainReinforcement,
} from "../../cookbook/reinforcement/index.js";
import { isRecord } from "../../wire/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { defaultExportOf } from "../own-module.js";
import { type ActingCommandOptions, actingOptions, addActingOptions } from "../train/acting-options.js";
import { runTrainingCommand } from "../train/run-command.js";
import {
  addRunOptions,
  modelOption,
  positive,
  type RunCommandOptions,
  runOptions,
} from "../train/run-options.js";
import { showingRollouts } from "../train/show-rollouts.js";

interface TrainOptions extends RunCommandOptions, ActingCommandOptions {
  readonly loss?: Extract<ReinforcementSettings["loss"], string>;
  readonly kl?: number;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<file>", "a module that exports problems and a reward as its default, or environments")
    .addOption(modelOption());
  addActingOptions(command, { groupSize: 16 })
    .option("--loss <name>", "importance_sampling, ppo, cispo, dro, gspo or dapo")
    .option("--kl <number>", "how strongly the model is held near its base model", positive);
  addRunOptions(command, { schedule: "constant" }).action((file: string, options: TrainOptions) =>
    train(file, options, context),
  );
};

async function train(file: string, options: TrainOptions, context: CommandContext): Promise<void> {
  const { loss, kl } = options;
  const given = definedOf({
    ...runOptions(options),
    ...actingOptions(options),
    loss,
    kl: kl === undefined ? undefined : { coefficient: kl },
  });
  // What the command line says goes before what the file does.
  const settings = { ...environmentOf(await defaultExportOf(file), file), ...given };
  await runTrainingCommand(
    {
      file,
      plan: (place) => planReinforcement({ ...settings, ...place }),
      train: (place) => trainReinforcement({ ...settings, ...showingRollouts(place) }),
    },
    options,
    context,
  );
}

type EnvironmentFile = SourceOptions<Problem> & Partial<ReinforcementSettings>;

/** What `trainReinforcement` gets of a file: the options that it exports, or environments alone. */
function environmentOf(exported: unknown, file: string): EnvironmentFile {
  if (typeof exported === "function") return { environments: exported as () => GroupSource };
  if (isRecord(exported)) {
    if (typeof exported["group"] === "function") return { environments: exported as unknown as GroupSource };
    if ("problems" in exported || "environments" in exported) return exported as unknown as EnvironmentFile;
  }
  throw new UsageError(
    `${file} must export as its default { problems, reward }, environments, or a function that makes them: ` +
      "export default { problems: [{ prompt, answer }], reward: ({ problem, text }) => (text === problem.answer ? 1 : 0) }",
  );
}

function definedOf<T extends object>(options: T): Partial<T> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Partial<T>;
}
