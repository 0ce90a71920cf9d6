import type { TrainOn } from "../../renderers/index.js";
import { wrongValue } from "../../wire/index.js";
import type { ConversationSource } from "../data/index.js";
import { checkChoice, checkCount, checkPositive, checkRunOptions, type RunOptions } from "../runs/options.js";

/** What `trainSupervised` needs; everything but the first three has a default. */
export interface TrainSupervisedOptions extends RunOptions {
  /** What to learn from: `conversations("chats.jsonl")`. */
  readonly data: ConversationSource;
  /** Times that each row is learnt. Default: 1. */
  readonly epochs?: number | undefined;
  /** No more steps than these. */
  readonly maxSteps?: number | undefined;
  /** Rows in a step. Default: from 4 to 128, so that an epoch has at least 20 steps. */
  readonly batchSize?: number | undefined;
  /** What of a conversation is learnt. Default: `all_assistant_messages`. */
  readonly trainOn?: TrainOn | undefined;
  /** `mean` (default): each example counts the same, however long it is. `sum`: each token does. */
  readonly reduction?: "mean" | "sum" | undefined;
  /** Tokens of an example; longer ones lose their end. Default: what the server says the model can read. */
  readonly maxLength?: number | undefined;
  /** Rows of `data` to measure with instead of learning from: a number, or a fraction below 1. Default: a tenth, at most 100. */
  readonly testSize?: number | undefined;
  /** Other conversations to measure with; none of `data` are held out then. */
  readonly testData?: ConversationSource | undefined;
  /** The price of training on a million tokens, to say beforehand what the run will cost. */
  readonly pricePerMillionTokens?: number | undefined;
}

const OWN_KEYS = [
  ...(["data", "epochs", "maxSteps", "batchSize", "trainOn", "reduction", "maxLength"] as const),
  ...(["testSize", "testData", "pricePerMillionTokens"] as const),
] satisfies Exclude<keyof TrainSupervisedOptions, keyof RunOptions>[];

/** Refuses what no run could be made of, before anything is read or sent. */
export function checkOptions(options: TrainSupervisedOptions): void {
  checkRunOptions(options, "trainSupervised", OWN_KEYS);
  checkConversations(options.data, "data");
  for (const field of ["epochs", "maxSteps", "batchSize"] as const) checkCount(options, field, 1);
  checkCount(options, "maxLength", 2);
  checkPositive(options, "pricePerMillionTokens");
  checkChoice("reduction", options.reduction, ["mean", "sum"]);
}

/** Refuses what no conversations can be read from. */
export function checkConversations(data: unknown, field: string): asserts data is ConversationSource {
  if (typeof (data as Partial<ConversationSource> | undefined)?.open !== "function")
    throw wrongValue(field, 'conversations, as conversations("chats.jsonl") gives them', data);
}
