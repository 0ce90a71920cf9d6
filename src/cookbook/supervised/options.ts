import type { TrainOn } from "../../renderers/index.js";
import { TRAIN_ON } from "../../renderers/renderer.js";
import {
  nonNegativeInteger,
  type OptionsOf,
  oneOf,
  option,
  optionTable,
  withDefault,
} from "../../wire/index.js";
import type { Conversation, ConversationSource } from "../data/index.js";
import { checkBest } from "../runs/options.js";
import { type RowsOptions, rowsOptions } from "./rows-options.js";

/** Options of `trainSupervised`; everything but `service`, `model` and `data` has a default. */
export interface TrainSupervisedOptions extends RowsOptions<Conversation> {
  /** Conversations to train on: `conversations("chats.jsonl")`. */
  readonly data: ConversationSource;
  /** The messages of a conversation that are trained on. Default: `all_assistant_messages`. */
  readonly trainOn?: TrainOn | undefined;
  /** `mean` (default): each example counts the same, however long it is. `sum`: each token does. */
  readonly reduction?: "mean" | "sum" | undefined;
  /** Held-out prompts that the model answers at each evaluation; a run with a folder keeps the answers there. Default: 3. */
  readonly answersAtEvaluation?: number | undefined;
}

/** How a source of conversations is made, for error messages. */
export const CONVERSATIONS = 'conversations, as conversations("chats.jsonl") gives them';

/** The options that only supervised training has. */
export const OWN_OPTIONS = {
  trainOn: option(withDefault(oneOf(...TRAIN_ON), TRAIN_ON[0]), "messages that are trained on", {
    flag: true,
    config: "train_on_what",
  }),
  reduction: option(
    withDefault(oneOf("mean", "sum"), "mean"),
    "mean: examples count the same; sum: tokens do",
    { flag: true, config: "reduction" },
  ),
  answersAtEvaluation: option(
    withDefault(nonNegativeInteger, 3),
    "held-out prompts that the model answers at each evaluation",
    { flag: true },
  ),
};

/** The options of `trainSupervised`. */
export const SUPERVISED_OPTIONS = optionTable(
  { ...rowsOptions<Conversation>(CONVERSATIONS), ...OWN_OPTIONS } satisfies OptionsOf<TrainSupervisedOptions>,
  checkBest,
);
