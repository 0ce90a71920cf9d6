import { type ConversationsOptions, conversations, questions } from "../../cookbook/data/index.js";
import { trainOffPolicyDistillation, trainOnPolicyDistillation } from "../../cookbook/distillation/index.js";
import { OFF_POLICY_OPTIONS } from "../../cookbook/distillation/off-policy.js";
import { ON_POLICY_OPTIONS } from "../../cookbook/distillation/on-policy.js";
import { comparisons, DPO_OPTIONS, trainDpo } from "../../cookbook/preferences/index.js";
import { SOURCE_OPTIONS } from "../../cookbook/reinforcement/group-source.js";
import { trainReinforcement } from "../../cookbook/reinforcement/index.js";
import { REINFORCEMENT_OPTIONS } from "../../cookbook/reinforcement/options.js";
import { SUPERVISED_OPTIONS, trainSupervised } from "../../cookbook/supervised/index.js";
import type { SweepOptions } from "../../cookbook/sweeps/index.js";
import type { Shape } from "../../wire/index.js";
import { unknownField } from "../../wire/index.js";
import { UsageError } from "../context.js";
import { namedModel, samplingSource } from "../named-model.js";
import { defaultExportOf } from "../own-module.js";
import { environmentOf } from "../train/environment-file.js";
import type { SweepPlan } from "./plan-file.js";

/** The kinds of training that a plan can name. */
export const SWEEP_KINDS = ["sft", "dpo", "rl", "distill"] as const;

/** A kind of training with the data of a plan. */
export interface SweepKind {
  readonly train: SweepOptions["train"];
  /** The options that it has. */
  readonly fields: Shape;
  /** Those that the files of the plan give. */
  readonly options: Readonly<Record<string, unknown>>;
}

/** The training that a plan names, with its data. Every option and value is checked before anything is trained. */
export async function kindOf(plan: SweepPlan): Promise<SweepKind> {
  const kind = await kindWithData(plan);
  checkSettings(plan.options, "options", kind.fields);
  for (const [index, settings] of (plan.list ?? []).entries())
    checkSettings(settings, `list[${index}]`, kind.fields);
  for (const [name, values] of Object.entries(plan.grid ?? {})) {
    for (const [index, value] of (Array.isArray(values) ? values : []).entries())
      checkOption(name, value, `grid.${name}`, `[${index}]`, kind.fields);
  }
  return kind;
}

async function kindWithData(plan: SweepPlan): Promise<SweepKind> {
  const { train: name, testFiles } = plan;
  const names = {
    ...(plan.dataFormat && { format: plan.dataFormat }),
    ...(plan.columns && { columns: plan.columns }),
  } as ConversationsOptions;
  const train = (call: unknown) => call as SweepOptions["train"];
  switch (name) {
    case "sft": {
      const test = testFiles && { testData: conversations(testFiles, names) };
      const options = { data: dataOf(plan, (files) => conversations(files, names)), ...test };
      return { train: train(trainSupervised), fields: SUPERVISED_OPTIONS.fields, options };
    }
    case "dpo": {
      const test = testFiles && { testData: comparisons(testFiles) };
      return {
        train: train(trainDpo),
        fields: DPO_OPTIONS.fields,
        options: { data: dataOf(plan, comparisons), ...test },
      };
    }
    case "rl": {
      const [file, ...others] = [plan.files ?? []].flat();
      if (others.length > 0) throw new UsageError("files: rl has one program with problems and their reward");
      const options = file === undefined ? {} : environmentOf(await defaultExportOf(file), file);
      return {
        train: train(trainReinforcement),
        fields: { ...REINFORCEMENT_OPTIONS, ...SOURCE_OPTIONS },
        options: { ...options },
      };
    }
    case "distill": {
      const { fields } = plan.offPolicy ? OFF_POLICY_OPTIONS : ON_POLICY_OPTIONS;
      const data = plan.offPolicy
        ? { data: dataOf(plan, (files) => conversations(files, names)) }
        : { prompts: dataOf(plan, (files) => questions(files, names), "prompts") };
      const call = plan.offPolicy ? trainOffPolicyDistillation : trainOnPolicyDistillation;
      return { train: train(call), fields, options: { ...data, ...(await teacherOf(plan)) } };
    }
    default:
      return name satisfies never;
  }
}

/** A teacher may be named as on the command line: a model, saved weights or the folder of a run. */
async function teacherOf({ options: { teacher } }: SweepPlan): Promise<{ readonly teacher?: string }> {
  if (typeof teacher !== "string") return {};
  const { modelPath, baseModel } = samplingSource(await namedModel(teacher));
  return { teacher: modelPath ?? baseModel! };
}

/** Rows of the plan's files, unless a program gives them itself. */
function dataOf<T>(
  plan: SweepPlan,
  read: (files: string | readonly string[]) => T,
  option = "data",
): T | undefined {
  if (plan.files !== undefined) return read(plan.files);
  const own = plan.options[option] as T | undefined;
  if (own === undefined)
    throw new UsageError("files: which data? Name one or more files, such as chats.jsonl");
  return own;
}

function checkSettings(settings: Readonly<Record<string, unknown>>, path: string, fields: Shape): void {
  for (const [name, value] of Object.entries(settings)) checkOption(name, value, path, `.${name}`, fields);
}

function checkOption(name: string, value: unknown, path: string, place: string, fields: Shape): void {
  const field = fields[name];
  if (field === undefined) throw unknownField(name, Object.keys(fields), path.replace(`.${name}`, ""));
  field.check(value, `${path}${place}`);
}
