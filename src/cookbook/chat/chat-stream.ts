import type { Message } from "../../renderers/messages.js";
import type { MessageDelta } from "../../renderers/stream-parser.js";
import type { SampledSequence } from "../../wire/index.js";
import { type ChatAnswer, type ChatOptions, type ChatSample, prepareChat } from "./chat.js";
import type { ChatSampler } from "./renderer-of.js";

/** A piece of an answer as it comes; the last is the whole answer. */
export type ChatDelta =
  | Exclude<MessageDelta, { type: "message" }>
  | ({ readonly type: "message" } & ChatAnswer);

/** The same as `chat` for one answer, in pieces, as early as the server gives them; leaving the loop makes it stop. */
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
  const request = { prompt, samplingParams };
  let sequence: SampledSequence | undefined;
  if (sampler.stream === undefined) {
    [sequence] = (await sampler.sample(request, { signal: options.signal })).sequences;
    yield* unfinished(parser.push(sequence!.tokens));
  } else {
    const stream = sampler.stream(request, { signal: options.signal });
    for await (const { token } of stream) yield* unfinished(parser.push(token));
    [sequence] = (await stream.result).sequences;
  }
  yield* unfinished(parser.end());
  const sample: ChatSample = read(sequence!);
  yield { type: "message", ...sample, prompt, samples: [sample] };
}

/** The parser's own last piece is left out: `chat` and `chatStream` read a whole answer in the same way. */
function unfinished(deltas: readonly MessageDelta[]): Exclude<MessageDelta, { type: "message" }>[] {
  return deltas.filter((delta) => delta.type !== "message");
}
