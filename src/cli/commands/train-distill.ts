import { type ConversationSource, conversations, questions } from "../../cookbook/data/index.js";
import {
  planOffPolicyDistillation,
  planOnPolicyDistillation,
  trainOffPolicyDistillation,
  trainOnPolicyDistillation,
} from "../../cookbook/distillation/index.js";
import { OFF_POLICY_OPTIONS } from "../../cookbook/distillation/off-policy.js";
import { ON_POLICY_OPTIONS } from "../../cookbook/distillation/on-policy.js";
import type { PlanSampling } from "../../cookbook/reinforcement/index.js";
import type { Shape } from "../../wire/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { addDataFlags, type DataFlags, FILES_HELP, rowNames } from "../data-flags.js";
import { MODEL_HELP, namedModel, samplingSource } from "../named-model.js";
import { flagNames } from "../option-flags.js";
import { runTrainingCommand, type TrainingKind } from "../train/run-command.js";
import {
  addTrainingFlags,
  modelOption,
  type RunCommandOptions,
  sampleGroupsOption,
  trainingOptions,
} from "../train/run-options.js";
import { showingRollouts } from "../train/show-rollouts.js";

interface TrainOptions extends RunCommandOptions, DataFlags {
  readonly offPolicy?: true;
}

/** Both kinds of distillation share most options; options of one kind are refused for the other. */
const FIELDS: Shape = {
  ...Object.fromEntries(
    Object.entries(OFF_POLICY_OPTIONS.fields).map(([name, field]) => [
      name,
      { ...field, notes: { ...field.notes, help: `off-policy: ${field.notes.help}` } },
    ]),
  ),
  ...ON_POLICY_OPTIONS.fields,
};

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<files...>", `prompts or conversations: ${FILES_HELP}`)
    .addOption(modelOption())
    .option("--off-policy", "train on the teacher's likeliest tokens in these conversations")
    .addOption(sampleGroupsOption());
  addTrainingFlags(addDataFlags(command), FIELDS).action((files: readonly string[], options: TrainOptions) =>
    train(files, options, context),
  );
};

async function train(
  files: readonly string[],
  options: TrainOptions,
  context: CommandContext,
): Promise<void> {
  const { fields } = options.offPolicy ? OFF_POLICY_OPTIONS : ON_POLICY_OPTIONS;
  const settings = trainingOptions(FIELDS, options);
  const foreign = Object.keys(settings).find((name) => !(name in fields));
  if (foreign !== undefined) {
    const which = options.offPolicy ? "does not go with" : "needs";
    throw new UsageError(`--${flagNames(FIELDS).get(foreign)} ${which} --off-policy`);
  }
  if (typeof settings["teacher"] !== "string")
    throw new UsageError(`which model teaches? Give --teacher: ${MODEL_HELP}`);
  const { modelPath, baseModel } = samplingSource(await namedModel(settings["teacher"]));
  const teacher = modelPath ?? baseModel!;
  const { sampleGroups } = options;
  if (options.offPolicy && sampleGroups !== undefined)
    throw new UsageError("--sample-groups does not go with --off-policy: its tokens are counted exactly");
  const names = rowNames(options);
  const kind = options.offPolicy
    ? offPolicy(conversations(files, names), teacher, settings)
    : onPolicy(questions(files, names), teacher, settings, { sampleGroups });
  await runTrainingCommand({ file: files[0]!, teacher, ...kind }, options, context);
}

type Settings = Readonly<Record<string, unknown>>;

function onPolicy(
  prompts: ConversationSource,
  teacher: string,
  settings: Settings,
  sampling: PlanSampling,
): Omit<TrainingKind, "file"> {
  const all = { ...settings, teacher, prompts };
  return {
    plan: (place) => planOnPolicyDistillation({ ...all, ...place }, sampling),
    train: (place) => trainOnPolicyDistillation({ ...all, ...showingRollouts(place) }),
  };
}

function offPolicy(
  data: ConversationSource,
  teacher: string,
  settings: Settings,
): Omit<TrainingKind, "file"> {
  const all = { ...settings, teacher, data };
  return {
    plan: (place) => planOffPolicyDistillation({ ...all, ...place }),
    train: (place) => trainOffPolicyDistillation({ ...all, ...place }),
  };
}
