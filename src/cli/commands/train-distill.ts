import { conversations, questions } from "../../cookbook/data/index.js";
import {
  planOffPolicyDistillation,
  planOnPolicyDistillation,
  trainOffPolicyDistillation,
  trainOnPolicyDistillation,
} from "../../cookbook/distillation/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { type ActingCommandOptions, actingOptions, addActingOptions } from "../train/acting-options.js";
import { runTrainingCommand, type TrainingKind } from "../train/run-command.js";
import {
  addRunOptions,
  count,
  modelOption,
  type RunCommandOptions,
  runOptions,
} from "../train/run-options.js";
import { showingRollouts } from "../train/show-rollouts.js";

interface TrainOptions extends RunCommandOptions, ActingCommandOptions {
  readonly teacher?: string;
  readonly offPolicy?: true;
  readonly epochs?: number;
  readonly batchSize?: number;
  readonly topk?: number;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<files...>", "prompts or conversations, one a line: .jsonl, .jsonl.gz or .parquet")
    .addOption(modelOption())
    .option("--teacher <name>", "who teaches: a model of the server, or tinker://RUN/sampler_weights/NAME")
    .option("--off-policy", "learn what the teacher would say in these conversations")
    .option("--epochs <number>", "off-policy: how often each row is learnt (default: 1)", count())
    .option("--batch-size <number>", "off-policy: rows in a step (default: 64)", count())
    .option("--topk <number>", "off-policy: likeliest tokens that are learnt (default: 20)", count());
  addActingOptions(command, { groupSize: 4 });
  addRunOptions(command, { schedule: "constant" }).action((files: readonly string[], options: TrainOptions) =>
    train(files, options, context),
  );
};

async function train(
  files: readonly string[],
  options: TrainOptions,
  context: CommandContext,
): Promise<void> {
  const { teacher } = options;
  if (teacher === undefined) {
    throw new UsageError("who teaches? Give --teacher NAME: a model of the server, or saved weights");
  }
  const kind = options.offPolicy ? offPolicy(files, teacher, options) : onPolicy(files, teacher, options);
  await runTrainingCommand({ file: files[0]!, ...kind }, options, context);
}

function onPolicy(
  files: readonly string[],
  teacher: string,
  options: TrainOptions,
): Omit<TrainingKind, "file"> {
  const { epochs, batchSize, topk } = options;
  refuse({ epochs, batchSize, topk }, "is for --off-policy");
  const settings = {
    ...runOptions(options),
    ...actingOptions(options),
    teacher,
    prompts: questions(files),
  };
  return {
    plan: (place) => planOnPolicyDistillation({ ...settings, ...place }),
    train: (place) => trainOnPolicyDistillation({ ...settings, ...showingRollouts(place) }),
  };
}

function offPolicy(
  files: readonly string[],
  teacher: string,
  options: TrainOptions,
): Omit<TrainingKind, "file"> {
  const { steps: maxSteps, ...acting } = actingOptions(options);
  refuse(acting, "is for what the model says itself, and not for --off-policy");
  const { epochs, batchSize, topk } = options;
  const data = conversations(files);
  const settings = { ...runOptions(options), teacher, data, epochs, batchSize, maxSteps, topk };
  return {
    plan: (place) => planOffPolicyDistillation({ ...settings, ...place }),
    train: (place) => trainOffPolicyDistillation({ ...settings, ...place }),
  };
}

/** Refuses options that would be ignored. */
function refuse(options: Readonly<Record<string, unknown>>, why: string): void {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    const flag = name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    throw new UsageError(`--${flag} ${why}`);
  }
}
