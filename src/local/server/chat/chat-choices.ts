import type { AnswerPiece, AnswerReader } from "../../../renderers/answer-reader.js";
import type { SampleWork } from "../sampling/sample-call.js";
import type { ScoredPlace } from "./logprobs.js";
import type { SampleEvent } from "./sampled-tokens.js";
import type { Usage } from "./usage.js";

/** A conversation that is ready to be sampled, and how its answers are read. */
export interface PreparedChat {
  readonly work: SampleWork;
  /** The tokens with which the format ends a turn. */
  readonly turnEnds: readonly number[];
  /** Other tokens that end a text, which the format does not know. */
  readonly otherEnds: readonly number[];
  readonly newReader: () => AnswerReader;
}

/** What happens to one choice of an answer. */
export interface ChoiceEvent {
  readonly index: number;
  readonly piece?: AnswerPiece | undefined;
  readonly places: readonly ScoredPlace[];
  readonly finishReason?: "stop" | "length" | "tool_calls";
}

type ChoiceEvents = AsyncGenerator<ChoiceEvent, void, undefined>;
type LogprobsOf = (places: readonly ScoredPlace[]) => object | null;

/** Reads the answers from their samples; the same events for a stream and for a whole answer. */
export async function* choiceEvents(
  samples: AsyncGenerator<SampleEvent, void, undefined>,
  { work, turnEnds, otherEnds, newReader }: PreparedChat,
  usage: Usage,
): ChoiceEvents {
  const readers = Array.from({ length: work.numSamples }, newReader);
  for await (const event of samples) {
    switch (event.type) {
      case "prompt":
        usage.cachedTokens += event.response.promptCacheHitTokens;
        break;
      case "token": {
        usage.completionTokens += 1;
        const [token] = event.scored;
        const pieces = otherEnds.includes(token) ? [] : readers[event.index]!.push(token);
        // What ends an answer is no part of it.
        const places = otherEnds.includes(token) || turnEnds.includes(token) ? [] : [event];
        yield* spread(event.index, pieces, places);
        break;
      }
      case "end": {
        const { index, stopReason } = event;
        const reader = readers[index]!;
        const pieces = reader.end();
        usage.reasoningTokens += reader.reasoningTokens;
        yield* spread(index, pieces, []);
        const hasCalls = pieces.some(({ type }) => type === "calls");
        yield {
          index,
          places: [],
          finishReason: hasCalls && stopReason === "stop" ? "tool_calls" : stopReason,
        };
        break;
      }
      default:
        event satisfies never;
    }
  }
}

/** The logprobs come with the first of the pieces. */
function spread(
  index: number,
  pieces: readonly AnswerPiece[],
  places: readonly ScoredPlace[],
): ChoiceEvent[] {
  if (pieces.length === 0) return [{ index, places }];
  return pieces.map((piece, place) => ({ index, piece, places: place === 0 ? places : [] }));
}

/** How the chunks of a stream are filled. */
export interface ChunkOptions {
  /** What all chunks begin with. */
  readonly head: object;
  readonly usage: Usage;
  readonly withUsage: boolean;
  readonly logprobsOf: LogprobsOf;
}

/** A stream's chunks: the role first, then what is said, then why it ended; logprobs as soon as something is said. */
export async function* chatChunks(
  events: ChoiceEvents,
  { head, usage, withUsage, logprobsOf }: ChunkOptions,
): AsyncGenerator<object, void, undefined> {
  const common = { ...head, object: "chat.completion.chunk" };
  const chunk = (index: number, delta: object, more: object) => ({
    ...common,
    choices: [{ index, delta, logprobs: null, finish_reason: null, ...more }],
    ...(withUsage && { usage: null }),
  });
  const unsaid = new Map<number, ScoredPlace[]>();
  for await (const { index, piece, places, finishReason } of events) {
    const heldBack = unsaid.get(index);
    if (heldBack === undefined) yield chunk(index, { role: "assistant", content: "" }, {});
    const scored = [...(heldBack ?? []), ...places];
    const isTold = piece !== undefined || finishReason !== undefined;
    unsaid.set(index, isTold ? [] : scored);
    if (!isTold) continue;
    const logprobs = scored.length === 0 ? null : logprobsOf(scored);
    const finish = finishReason === undefined ? {} : { finish_reason: finishReason };
    yield chunk(index, piece === undefined ? {} : deltaOf(piece), { logprobs, ...finish });
  }
  if (withUsage) yield { ...common, choices: [], usage: usage.toJson() };
}

function deltaOf(piece: AnswerPiece): object {
  switch (piece.type) {
    case "text":
      return { content: piece.text };
    case "reasoning":
      return { reasoning_content: piece.text };
    case "calls":
      return { tool_calls: piece.calls.map((call, index) => ({ index, ...callOf(call) })) };
    default:
      return piece satisfies never;
  }
}

function callOf({
  id,
  name,
  arguments: given,
}: {
  id: string | undefined;
  name: string;
  arguments: string;
}): object {
  return { id, type: "function", function: { name, arguments: given } };
}

/** The choices of an answer that is sent whole. */
export async function wholeChoices(
  events: ChoiceEvents,
  count: number,
  logprobsOf: LogprobsOf,
): Promise<object[]> {
  const answers = Array.from({ length: count }, () => ({
    pieces: [] as AnswerPiece[],
    places: [] as ScoredPlace[],
    finishReason: "stop" as string,
  }));
  for await (const { index, piece, places, finishReason } of events) {
    const answer = answers[index]!;
    if (piece !== undefined) answer.pieces.push(piece);
    answer.places.push(...places);
    answer.finishReason = finishReason ?? answer.finishReason;
  }
  return answers.map(({ pieces, places, finishReason }, index) => ({
    index,
    message: messageOf(pieces),
    finish_reason: finishReason,
    logprobs: logprobsOf(places),
  }));
}

function messageOf(pieces: readonly AnswerPiece[]): object {
  const said = (type: "text" | "reasoning") =>
    pieces.map((piece) => (piece.type === type ? piece.text : "")).join("");
  const calls = pieces.flatMap((piece) => (piece.type === "calls" ? piece.calls.map(callOf) : []));
  const [text, reasoning] = [said("text"), said("reasoning")];
  return {
    role: "assistant",
    content: text === "" && calls.length > 0 ? null : text,
    refusal: null,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}
