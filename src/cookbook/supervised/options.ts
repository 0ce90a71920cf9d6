import type { TrainOn } from "../../renderers/index.js";
import type { Conversation, ConversationSource } from "../data/index.js";
import { checkChoice } from "../runs/options.js";
import { checkRowsOptions, checkSource, type RowsOptions } from "./rows-options.js";

/** What `trainSupervised` needs; everything but `service`, `model` and `data` has a default. */
export interface TrainSupervisedOptions extends RowsOptions<Conversation> {
  /** What to learn from: `conversations("chats.jsonl")`. */
  readonly data: ConversationSource;
  /** What of a conversation is learnt. Default: `all_assistant_messages`. */
  readonly trainOn?: TrainOn | undefined;
  /** `mean` (default): each example counts the same, however long it is. `sum`: each token does. */
  readonly reduction?: "mean" | "sum" | undefined;
}

const OWN_KEYS = ["trainOn", "reduction"] satisfies Exclude<
  keyof TrainSupervisedOptions,
  keyof RowsOptions<never>
>[];
const CONVERSATIONS = 'conversations, as conversations("chats.jsonl") gives them';

/** Refuses what no run could be made of, before anything is read or sent. */
export function checkOptions(options: TrainSupervisedOptions): void {
  checkRowsOptions(options, { caller: "trainSupervised", ownKeys: OWN_KEYS, rows: CONVERSATIONS });
  checkChoice("reduction", options.reduction, ["mean", "sum"]);
}

/** Refuses what no conversations can be read from. */
export function checkConversations(data: unknown, field: string): asserts data is ConversationSource {
  checkSource(data, field, CONVERSATIONS);
}
