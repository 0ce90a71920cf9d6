import type { Message, ToolDeclaration } from "../../renderers/index.js";

/** A training example: messages, and the tools that the model could call. */
export interface Conversation {
  readonly messages: readonly Message[];
  readonly tools?: readonly ToolDeclaration[] | undefined;
}

/** Part of a row that cannot be used. */
export interface RowProblem {
  /** Path of the field, `messages[2].role`; empty for the row itself. */
  readonly field: string;
  readonly message: string;
}

/** The formats of conversations that are read, by what other tools call them. */
export const ROW_FORMATS = ["messages", "sharegpt", "alpaca", "prompt-completion"] as const;

/** Format of a row: the names of its fields and what they mean. */
export type RowFormat = (typeof ROW_FORMATS)[number];

/** The contents of a row, or all its problems. */
export type ReadRow<Row = Conversation> = {
  /** The format that it was read as, for conversations. */
  readonly format?: RowFormat | undefined;
} & (
  | { readonly row: Row; readonly problems?: undefined }
  | { readonly row?: undefined; readonly problems: readonly RowProblem[] }
);
