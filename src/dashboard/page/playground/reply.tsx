import type { ShownMessage, ShownToken } from "../../api.js";
import { durationLabel, wholeNumberText } from "../format.js";
import { ConversationView } from "../parts/conversation.js";
import { ProblemNote } from "../parts/pieces.js";
import { type Coloring, Tokens } from "../parts/tokens.js";
import type { Reply } from "./chat.js";

/** How the tokens of answers are shown. */
export interface TokenView {
  readonly coloring: Coloring;
  readonly isTable: boolean;
}

/** An answer: its text as it comes, then its tokens. */
export function ReplyView({ reply, coloring, isTable }: { readonly reply: Reply } & TokenView) {
  const { answer, problem, text, thinking, isRunning } = reply;
  if (problem !== undefined) return <ProblemNote text={problem} />;
  const isText = answer === undefined || answer.tokens.length === 0 || (coloring === "none" && !isTable);
  const message: ShownMessage = answer?.message ?? {
    role: "assistant",
    parts: [
      ...(thinking === "" ? [] : [{ type: "thinking", text: thinking } as const]),
      { type: "text", text: text === "" && isRunning ? "…" : text },
    ],
  };
  return (
    <div aria-live="polite" aria-busy={isRunning}>
      {isText ? (
        <ConversationView messages={[message]} />
      ) : (
        <div class="message assistant">
          <span class="role">assistant</span>
          <Tokens tokens={answer.tokens} {...{ coloring, isTable }} />
        </div>
      )}
      {answer && (
        <p class="note">
          {wholeNumberText(answer.tokens.length)} tokens in {durationLabel(answer.seconds)}, ended by{" "}
          {answer.stopReason}
          {meanLogprob(answer.tokens)}
        </p>
      )}
    </div>
  );
}

function meanLogprob(tokens: readonly ShownToken[]): string {
  const known = tokens.flatMap(({ logprob }) => (typeof logprob === "number" ? logprob : []));
  if (known.length === 0) return "";
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  return `, mean logprob ${mean.toFixed(3).replace(/^-(?=0\.000$)/, "")}`;
}
