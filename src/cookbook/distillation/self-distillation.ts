import * as f from "../../wire/fields/index.js";
import type { Conversation, ConversationSource } from "../data/index.js";
import { type OpenRows, placesOf } from "../data/rows.js";
import { problemGroups } from "../environments/index.js";
import type { ReinforcementSettings } from "../reinforcement/index.js";
import { REINFORCEMENT_OPTIONS } from "../reinforcement/options.js";
import { promptLengthsOf } from "../reinforcement/planned-work.js";
import { type PlanSampling, planKind, runReinforcement } from "../reinforcement/train-reinforcement.js";
import { findRenderer, preparationSignal } from "../runs/find-model.js";
import type { FinishedRun, RunPlan } from "../runs/run-training.js";
import { CONVERSATIONS } from "../supervised/options.js";
import { sourceOption } from "../supervised/rows-options.js";
import { describeTeachers, openTeachers } from "./domains.js";
import { hintedTeaching } from "./hinted-teaching.js";
import { defaultHint, type Hint, hintedPrompt, hintedQuestion } from "./hints.js";
import { shuffledRows, type TaughtRun } from "./prompts.js";
import { type Teacher, teacherField } from "./teacher.js";

/**
 * Options of `trainSelfDistillation`; the others are those of `trainReinforcement`, but the adapter has rank 128 and
 * each question one answer.
 */
export interface SelfDistillationOptions
  extends Omit<
    ReinforcementSettings,
    "advantages" | "dropConstantGroups" | "kl" | "loss" | "penalties" | "measurePostKl"
  > {
  /** Questions with a known good answer: conversations that end with it. */
  readonly data: ConversationSource;
  /** How often each question comes. Default: 1. */
  readonly epochs?: number | undefined;
  /** Teacher that reads the good answers. Default: the model before training. */
  readonly teacher?: Teacher | undefined;
  /** Writes the teacher's prompt, in place of the question. */
  readonly hint?: Hint | undefined;
  /** Number of the teacher's likeliest tokens to train on at each position; 0: only its logprob of the sampled token. Default: 20. */
  readonly topk?: number | undefined;
  /** Whether to train on the reverse KL to the teacher instead of the forward one. Default: no. */
  readonly reverse?: boolean | undefined;
  /**
   * Number of tokens at the beginning of an answer that are not trained on, because the hint affects them most.
   * Default: 3; none with `topk: 0`.
   */
  readonly skipTokens?: number | undefined;
}

const {
  advantages: _advantages,
  dropConstantGroups: _dropConstantGroups,
  kl: _kl,
  loss: _loss,
  penalties: _penalties,
  measurePostKl: _measurePostKl,
  ...REST
} = REINFORCEMENT_OPTIONS;

const DEFAULT_RANK = 128;
const DEFAULT_SKIP_TOKENS = 3;

const TABLE = f.optionTable(
  {
    ...REST,
    groupSize: f.defaulting(REST.groupSize, 1),
    rank: f.option(f.optional(f.positiveInteger), REST.rank.notes.help, {
      ...REST.rank.notes,
      otherwise: String(DEFAULT_RANK),
    }),
    data: f.option(sourceOption<Conversation>(CONVERSATIONS), "conversations that end with a good answer"),
    epochs: f.option(f.withDefault(f.positiveInteger, 1), "times each question comes", {
      config: "num_epochs",
    }),
    teacher: f.option(f.optional(teacherField), "model that reads the good answers", {
      otherwise: "the model itself",
    }),
    hint: f.option(
      f.withDefault(f.functionOf<Hint>("a function of the question and its good answer"), defaultHint),
      "writes what the teacher reads in place of the question",
    ),
    topk: f.option(
      f.withDefault(f.nonNegativeInteger, 20),
      "likeliest tokens of the teacher that are trained on; 0: only its opinion of the sampled one",
      { config: "topk" },
    ),
    reverse: f.option(f.withDefault(f.boolean, false), "train by the reverse KL to the teacher", {
      config: "reverse",
    }),
    skipTokens: f.option(
      f.optional(f.nonNegativeInteger),
      "first tokens of an answer that are not trained on",
      { otherwise: "3; 0 with topk: 0" },
    ),
  } satisfies f.OptionsOf<SelfDistillationOptions>,
  ({ reverse, topk, skipTokens }) => {
    if (reverse && topk === 0)
      throw f.wrongField(
        "reverse",
        "needs topk above 0: it is a divergence over the teacher's likeliest tokens",
      );
    if (skipTokens !== undefined && topk === 0)
      throw f.wrongField("skipTokens", "needs topk above 0: without it all tokens count");
  },
);

const ROWS_AT_A_TIME = 64;

/**
 * Trains by self-distillation with a hint (SDFT): the student answers questions, and a teacher that has read a good
 * answer to each gives its likeliest tokens at every position. The model keeps its other abilities, because it is
 * trained on its own answers.
 */
export async function trainSelfDistillation(options: SelfDistillationOptions): Promise<FinishedRun> {
  await using run = await prepareSelfDistillation(options);
  return await runReinforcement(run.options, run.kind);
}

/**
 * Decides every setting, finds the teacher and estimates tokens and dollars without training anything; nothing is
 * sampled either, unless `sampleGroups` is given. The teacher's hints are not part of the estimate.
 */
export async function planSelfDistillation(
  options: SelfDistillationOptions,
  sampling: PlanSampling = {},
): Promise<RunPlan> {
  await using run = await prepareSelfDistillation(options);
  return await planKind(run.options, run.kind, sampling);
}

async function prepareSelfDistillation(given: SelfDistillationOptions): Promise<TaughtRun> {
  const options = TABLE.check(given, "trainSelfDistillation");
  const { data, epochs, teacher = given.model, hint, ...rest } = options;
  const { topk, reverse, skipTokens = DEFAULT_SKIP_TOKENS, ...settings } = rest;
  const signal = preparationSignal(given);
  const { renderer, rendererName } = await findRenderer(given, signal);
  const student = { renderer, rendererName, isOwn: typeof given.renderer === "object" };
  const domains = [{ name: "questions", teacher }];
  const opened = await openTeachers(given.service, domains, student, signal);
  const close = () => opened[Symbol.asyncDispose]();
  try {
    const rows = await openQuestions(data);
    const conversationAt = shuffledRows(rows, settings.seed);
    const questionAt = async (index: number) => hintedQuestion(await conversationAt(index), `group ${index}`);
    const { penalty, loss } = hintedTeaching({
      teacher: opened.teachers[0]!,
      promptOf: async (index) => hintedPrompt(await questionAt(index), renderer, hint),
      maxLength: opened.teachers[0]!.maxLength,
      topk,
      isReverse: reverse,
      skipTokens,
    });
    return {
      options: {
        ...settings,
        rank: settings.rank ?? DEFAULT_RANK,
        penalties: () => [penalty],
        loss,
        environments: (context) => ({
          ...problemGroups({
            problems: async (index) => ({ messages: (await questionAt(index)).messages }),
            reward: () => 0,
            ...context,
          }),
          length: rows.length * epochs,
        }),
      },
      kind: {
        config: {
          ...f.keptOptions(
            { epochs: TABLE.fields.epochs, topk: TABLE.fields.topk, reverse: TABLE.fields.reverse },
            options,
          ),
          teacher: opened.teachers[0]!.name,
          skip_first_n_tokens: topk === 0 ? 0 : skipTokens,
          hint: hint("{question}", "{golden_answer}"),
          rows: rows.length,
        },
        described: [
          ["rows", `${rows.length.toLocaleString("en-US")} questions with a good answer`],
          ["teacher", `${describeTeachers(domains, opened)}, with the answer as a hint`],
        ],
        readers: [opened.teachers[0]!.baseModel],
        promptLengths: async (_, most) => {
          const indices = Array.from({ length: Math.min(most, rows.length) }, (__, index) => index);
          const questions = await Promise.all(indices.map(questionAt));
          return promptLengthsOf(questions, renderer);
        },
      },
      [Symbol.asyncDispose]: async () => {
        await Promise.all([rows.close(), close()]);
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Reads every row once, so that an invalid row is reported before anything is sampled. */
async function openQuestions(data: ConversationSource): Promise<OpenRows<Conversation>> {
  const rows = await data.open();
  try {
    if (rows.length === 0) throw f.wrongField("data", "has no rows: there is nothing to learn from");
    for (const places of placesOf(rows, ROWS_AT_A_TIME))
      for (const [order, row] of (await rows.read(places)).entries())
        hintedQuestion(row, rows.place(places[order]!));
    return rows;
  } catch (error) {
    await rows.close();
    throw error;
  }
}
