import type { Message, ToolDeclaration } from "../../renderers/index.js";

/** What a model learns from: messages, and the tools that were at hand. */
export interface Conversation {
  readonly messages: readonly Message[];
  readonly tools?: readonly ToolDeclaration[] | undefined;
}

/** Something in a row that cannot be used as it is. */
export interface RowProblem {
  /** `messages[2].role`; empty for the row itself. */
  readonly field: string;
  readonly message: string;
}

/** What a row says, or all that is wrong in it. */
export type ReadRow<Row = Conversation> =
  | { readonly row: Row; readonly problems?: undefined }
  | { readonly row?: undefined; readonly problems: readonly RowProblem[] };
