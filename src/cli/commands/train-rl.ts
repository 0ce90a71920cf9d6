import { Option } from "commander";
import type { GroupSource, Problem } from "../../cookbook/environments/index.js";
import {
  planReinforcement,
  type ReinforcementMode,
  type ReinforcementSettings,
  type SourceOptions,
  trainReinforcement,
} from "../../cookbook/reinforcement/index.js";
import { isRecord } from "../../wire/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { defaultExportOf } from "../own-module.js";
import { runTrainingCommand } from "../train/run-command.js";
import {
  addRunOptions,
  count,
  modelOption,
  positive,
  type RunCommandOptions,
  runOptions,
} from "../train/run-options.js";
import { RolloutDisplay } from "../train/show-rollouts.js";

interface TrainOptions extends RunCommandOptions {
  readonly steps?: number;
  readonly groupSize?: number;
  readonly groupsPerBatch?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly mode?: ReinforcementMode;
  readonly maxStepsOffPolicy?: number;
  readonly loss?: Extract<ReinforcementSettings["loss"], string>;
  readonly kl?: number;
}

const MODES = ["synchronous", "streamed", "asynchronous"] satisfies ReinforcementMode[];

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<file>", "a module that exports problems and a reward as its default, or environments")
    .addOption(modelOption())
    .option("--steps <number>", "updates (default: so many that each problem comes once)", count())
    .option("--group-size <number>", "tries at each problem, which are compared (default: 16)", count())
    .option("--groups-per-batch <number>", "problems in a step (default: 32)", count())
    .option("--max-tokens <number>", "of an answer (default: what the model has room for)", count())
    .option("--temperature <number>", "of the samples (default: 1)", positive)
    .addOption(new Option("--mode <name>", "how sampling and training share the time").choices(MODES))
    .option("--max-steps-off-policy <number>", "how old sampled data may be (default: 1)", count())
    .option("--loss <name>", "importance_sampling, ppo, cispo, dro, gspo or dapo")
    .option("--kl <number>", "how strongly the model is held near the one it began as", positive);
  addRunOptions(command, { schedule: "constant" }).action((file: string, options: TrainOptions) =>
    train(file, options, context),
  );
};

async function train(file: string, options: TrainOptions, context: CommandContext): Promise<void> {
  const { steps, groupSize, groupsPerBatch, maxTokens, temperature, mode, maxStepsOffPolicy, loss } = options;
  const given = definedOf({
    ...runOptions(options),
    ...{ steps, groupSize, groupsPerBatch, maxTokens, temperature, mode, maxStepsOffPolicy, loss },
    kl: options.kl === undefined ? undefined : { coefficient: options.kl },
  });
  // What the command line says goes before what the file does.
  const settings = { ...environmentOf(await defaultExportOf(file), file), ...given };
  await runTrainingCommand(
    {
      file,
      plan: (place) => planReinforcement({ ...settings, ...place }),
      train: ({ loggers = [], ...place }) => {
        const display = new RolloutDisplay(loggers[0]!);
        const onRollouts = display.show.bind(display);
        return trainReinforcement({ ...settings, ...place, onRollouts, loggers: [display, ...loggers] });
      },
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
