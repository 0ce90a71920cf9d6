import { ValidationError } from "../../errors.js";
import { wrongValue } from "../../wire/index.js";
import type { Conversation, ConversationSource } from "../data/index.js";
import type { OpenRows } from "../data/rows.js";
import { problemGroups } from "../environments/index.js";
import type { ReinforcementSettings } from "../reinforcement/index.js";
import { planKind, runReinforcement } from "../reinforcement/train-reinforcement.js";
import { findRenderer, preparationSignal } from "../runs/find-model.js";
import { checkCount, checkRunOptions, type RunOptions } from "../runs/options.js";
import type { FinishedRun, RunPlan } from "../runs/run-training.js";
import { checkConversations } from "../supervised/options.js";
import { describeTeachers, openTeachers } from "./domains.js";
import { hintedTeaching } from "./hinted-teaching.js";
import { defaultHint, type Hint, hintedPrompt, hintedQuestion } from "./hints.js";
import { ON_POLICY_KEYS, shuffledRows, type TaughtRun } from "./prompts.js";
import { checkTeacher, type Teacher } from "./teacher.js";

/**
 * What `trainSelfDistillation` needs; the rest is as for `trainReinforcement`, but that the adapter has rank 128, and
 * that there is one answer to each question.
 */
export interface SelfDistillationOptions
  extends Omit<
    ReinforcementSettings,
    "advantages" | "dropConstantGroups" | "kl" | "loss" | "penalties" | "measurePostKl"
  > {
  /** Questions with an answer that is known to be good: conversations that end with these. */
  readonly data: ConversationSource;
  /** Times that each question comes. Default: 1. */
  readonly epochs?: number | undefined;
  /** Who reads the good answers. Default: the model itself, as it is before. */
  readonly teacher?: Teacher | undefined;
  /** Writes what the teacher reads instead of the question. */
  readonly hint?: Hint | undefined;
  /** How many of the teacher's likeliest tokens are learnt at each position; 0: only what it thinks of the sampled one. Default: 20. */
  readonly topk?: number | undefined;
  /** Whether the student learns by the reverse KL to the teacher instead of the forward one. Default: no. */
  readonly reverse?: boolean | undefined;
  /** So many tokens at the beginning of an answer are not learnt, as the hint shows there most. Default: 3; none with `topk: 0`. */
  readonly skipTokens?: number | undefined;
}

const OWN_KEYS = [
  ...ON_POLICY_KEYS,
  ...(["data", "epochs", "teacher", "hint", "topk", "reverse", "skipTokens", "groupsPerBatch"] as const),
] satisfies Exclude<keyof SelfDistillationOptions, keyof RunOptions>[];
const DEFAULT_RANK = 128;
const DEFAULT_TOPK = 20;
const DEFAULT_SKIP_TOKENS = 3;
const ROWS_AT_A_TIME = 64;

/**
 * Self-distillation with a hint (SDFT): the student answers questions, and a teacher that has read a good answer to each
 * says what it would have written at every token. What the model knew before stays, as it learns from its own words.
 */
export async function trainSelfDistillation(options: SelfDistillationOptions): Promise<FinishedRun> {
  await using run = await prepareSelfDistillation(options);
  return await runReinforcement(run.options, run.kind);
}

/** Decides every setting and finds the teacher, without sampling or training anything. */
export async function planSelfDistillation(options: SelfDistillationOptions): Promise<RunPlan> {
  await using run = await prepareSelfDistillation(options);
  return await planKind(run.options, run.kind);
}

async function prepareSelfDistillation(given: SelfDistillationOptions): Promise<TaughtRun> {
  checkOptions(given);
  const { data, epochs = 1, teacher = given.model, hint = defaultHint, ...rest } = given;
  const { topk = DEFAULT_TOPK, reverse = false, skipTokens = DEFAULT_SKIP_TOKENS, ...settings } = rest;
  const signal = preparationSignal(given);
  const { renderer, rendererName } = await findRenderer(given, signal);
  const student = { renderer, rendererName, isOwn: typeof given.renderer === "object" };
  const domains = [{ name: "questions", teacher }];
  const opened = await openTeachers(given.service, domains, student, signal);
  const close = () => opened[Symbol.asyncDispose]();
  try {
    const rows = await openQuestions(data);
    const conversationAt = shuffledRows(rows, given.seed ?? 0);
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
        groupSize: settings.groupSize ?? 1,
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
          num_epochs: epochs,
          teacher: opened.teachers[0]!.name,
          topk,
          reverse,
          skip_first_n_tokens: topk === 0 ? 0 : skipTokens,
          hint: hint("{question}", "{golden_answer}"),
          rows: rows.length,
        },
        described: [
          ["rows", `${rows.length.toLocaleString("en-US")} questions with a good answer`],
          ["teacher", `${describeTeachers(domains, opened)}, with the answer as a hint`],
        ],
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

function checkOptions(options: SelfDistillationOptions): void {
  checkRunOptions(options, "trainSelfDistillation", OWN_KEYS);
  const { data, teacher = options.model, hint, topk, reverse, skipTokens } = options;
  checkConversations(data, "data");
  checkTeacher(teacher, "teacher");
  if (hint !== undefined && typeof hint !== "function")
    throw wrongValue("hint", "a function of the question and its good answer", hint);
  checkCount(options, "epochs", 1);
  checkCount(options, "topk", 0);
  checkCount(options, "skipTokens", 0);
  if (reverse && topk === 0) {
    throw new ValidationError(
      "reverse",
      "reverse needs topk above 0: it is a divergence over the teacher's likeliest tokens",
    );
  }
  if (skipTokens !== undefined && topk === 0)
    throw new ValidationError("skipTokens", "skipTokens needs topk above 0: without it all tokens count");
}

/** Reads every row once, so that what is wrong with one is known before anything is sampled. */
async function openQuestions(data: ConversationSource): Promise<OpenRows<Conversation>> {
  const rows = await data.open();
  try {
    if (rows.length === 0)
      throw new ValidationError("data", "data has no rows: there is nothing to learn from");
    for (let start = 0; start < rows.length; start += ROWS_AT_A_TIME) {
      const length = Math.min(ROWS_AT_A_TIME, rows.length - start);
      const indices = Array.from({ length }, (_, place) => start + place);
      for (const [place, row] of (await rows.read(indices)).entries())
        hintedQuestion(row, rows.place(start + place));
    }
    return rows;
  } catch (error) {
    await rows.close();
    throw error;
  }
}
