import type { Message } from "../../renderers/messages.js";
import type { MessageDelta } from "../../renderers/stream-parser.js";
import type { SampledSequence, SamplingParams } from "../../wire/index.js";
import { type ChatAnswer, type ChatOptions, type ChatSample, prepareChat } from "./chat.js";
import type { ChatSampler } from "./renderer-of.js";

/** A piece of an answer as it comes; the last is the whole answer. */
export type ChatDelta =
  | Exclude<MessageDelta, { type: "message" }>
  | ({ readonly type: "message" } & ChatAnswer);

/** The same as `chat` for one answer, in pieces, as early as the server gives them. */
export async function* chatStream(
  sampler: ChatSampler,
  messages: readonly Message[],
  options: Omit<ChatOptions, "numSamples"> = {},
): AsyncGenerator<ChatDelta, void, undefined> {
  const { renderer, prompt, prefillTokens, samplingParams, read } = await prepareChat(
    sampler,
    messages,
    options,
  );
  const parser = renderer.streamParser();
  yield* unfinished(parser.push(prefillTokens));
  const pieces: SampledPiece[] = [];
  for await (const piece of sampledPieces(sampler, { prompt, samplingParams }, options.signal)) {
    pieces.push(piece);
    yield* unfinished(parser.push(piece.tokens));
  }
  yield* unfinished(parser.end());
  const sample: ChatSample = read(joined(pieces));
  yield { type: "message", ...sample, prompt, samples: [sample] };
}

type SampledPiece = Pick<SampledSequence, "tokens" | "logprobs" | "stopReason">;

/** Where tokens come from. The API gives a whole sequence at once today; streaming would be put in here. */
async function* sampledPieces(
  sampler: ChatSampler,
  request: { readonly prompt: ChatAnswer["prompt"]; readonly samplingParams: SamplingParams },
  signal: AbortSignal | undefined,
): AsyncGenerator<SampledPiece, void, undefined> {
  const { sequences } = await sampler.sample(request, { signal });
  yield sequences[0]!;
}

/** The parser's own last piece is left out: `chat` and `chatStream` read a whole answer in the same way. */
function unfinished(deltas: readonly MessageDelta[]): Exclude<MessageDelta, { type: "message" }>[] {
  return deltas.filter((delta) => delta.type !== "message");
}

function joined(pieces: readonly SampledPiece[]): SampledPiece {
  const tokens = Int32Array.from(pieces.flatMap((piece) => [...piece.tokens]));
  const logprobs = pieces.every((piece) => piece.logprobs !== null)
    ? Float32Array.from(pieces.flatMap((piece) => [...piece.logprobs!]))
    : null;
  return { tokens, logprobs, stopReason: pieces.at(-1)?.stopReason ?? "stop" };
}
