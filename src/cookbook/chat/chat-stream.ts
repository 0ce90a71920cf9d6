import type { Message } from "../../renderers/messages.js";
import type { MessageDelta } from "../../renderers/stream-parser.js";
import { samplerSource } from "../../renderers/token-source.js";
import type { SampleResponse, TopkLogprobs } from "../../wire/index.js";
import { type ChatAnswer, type ChatOptions, prepareChat, sampleOf, settingsOf } from "./chat.js";
import type { ChatSampler } from "./renderer-of.js";

/** A piece of an answer as it arrives; the last is the whole answer. */
export type ChatDelta =
  | Exclude<MessageDelta, { type: "message" }>
  | ({ readonly type: "message" } & ChatAnswer);

/**
 * Answers like `chat`, but yields one answer in pieces as the server sends them; leaving the loop stops the sampling.
 */
export async function* chatStream(
  sampler: ChatSampler,
  messages: readonly Message[],
  options: Omit<ChatOptions, "numSamples"> = {},
): AsyncGenerator<ChatDelta, void, undefined> {
  const prepared = await prepareChat(sampler, messages, options);
  const settings = { ...settingsOf(options), isLive: true };
  const parser = prepared.newParser();
  yield* unfinished(parser.push(prepared.prefillTokens));
  let response: SampleResponse | undefined;
  const top: TopkLogprobs = [];
  for await (const event of samplerSource(sampler).sample(prepared, settings)) {
    if (event.type === "response") response = event.response;
    if (event.type !== "token") continue;
    top.push(event.top.map(([token, logprob]) => [token, logprob]));
    yield* unfinished(parser.push(event.scored[0]));
  }
  yield* unfinished(parser.end());
  const [sequence] = response!.sequences;
  // A server may report the likeliest tokens with each token, and not again at the end.
  const topkLogprobs = sequence!.topkLogprobs ?? (options.topLogprobs ? top : null);
  const sample = sampleOf(prepared, { ...sequence!, topkLogprobs });
  yield { type: "message", ...sample, prompt: prepared.prompt, samples: [sample] };
}

/** The parser's own last piece is left out: `chat` and `chatStream` parse a whole answer in the same way. */
function unfinished(deltas: readonly MessageDelta[]): Exclude<MessageDelta, { type: "message" }>[] {
  return deltas.filter((delta) => delta.type !== "message");
}
