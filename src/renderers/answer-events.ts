import type { SampleResponse, StopReason } from "../wire/index.js";
import type { AnswerPiece } from "./answer-reader.js";
import type { PreparedAnswer } from "./prepare-answer.js";
import type { TokenEvent, TokenSettings, TokenSource } from "./token-source.js";

/** A sampled token with its logprob and the likeliest tokens. */
export type AnswerToken = Extract<TokenEvent, { readonly type: "token" }>;

/** Event of one of the answers to a conversation. */
export interface AnswerEvent {
  /** The number of the answer. */
  readonly sample: number;
  readonly piece?: AnswerPiece | undefined;
  /** Tokens sampled since the last event of this answer, without those that only end it. */
  readonly tokens: readonly AnswerToken[];
  /** On the last event of an answer: why it ended. */
  readonly stopReason?: StopReason;
  /** On the last event of an answer: whether it calls tools. */
  readonly hasCalls?: boolean;
}

/** A finished answer. */
export interface WholeAnswer {
  /** In the order in which they were written; neighbours of one type are one piece. */
  readonly pieces: readonly AnswerPiece[];
  readonly tokens: readonly AnswerToken[];
  readonly stopReason: StopReason;
  readonly hasCalls: boolean;
}

/** Token counts of the answers to a conversation, updated while they are sampled. */
export class AnswerUsage {
  readonly promptTokens: number;
  cachedTokens = 0;
  completionTokens = 0;
  reasoningTokens = 0;

  constructor(promptTokens: number) {
    this.promptTokens = promptTokens;
  }
}

/** The answers to a prepared conversation while they are sampled: the same events for a stream and for whole answers. */
export class Answers implements AsyncIterable<AnswerEvent> {
  readonly usage: AnswerUsage;
  /** The whole sample; known at the end. */
  response: SampleResponse | undefined;
  readonly #numSamples: number;
  readonly #events: AsyncGenerator<AnswerEvent, void, undefined>;

  constructor(source: TokenSource, prepared: PreparedAnswer, settings: TokenSettings) {
    this.usage = new AnswerUsage(prepared.prompt.length);
    this.#numSamples = settings.numSamples ?? 1;
    this.#events = this.#read(source, prepared, settings);
  }

  [Symbol.asyncIterator](): AsyncGenerator<AnswerEvent, void, undefined> {
    return this.#events;
  }

  /** All answers, once they are finished. */
  whole(): Promise<readonly WholeAnswer[]> {
    return wholeAnswers(this, this.#numSamples);
  }

  async *#read(
    source: TokenSource,
    prepared: PreparedAnswer,
    settings: TokenSettings,
  ): AsyncGenerator<AnswerEvent, void, undefined> {
    const { usage } = this;
    const readers = Array.from({ length: this.#numSamples }, () => prepared.newReader());
    for await (const event of source.sample(prepared, settings)) {
      if (event.type === "response") {
        this.response = event.response;
        usage.cachedTokens = event.response.promptCacheHitTokens;
        continue;
      }
      const { sample } = event;
      const reader = readers[sample]!;
      if (event.type === "token") {
        usage.completionTokens += 1;
        const [token] = event.scored;
        yield* spread(sample, reader.push(token), prepared.isEnd(token) ? [] : [event]);
        continue;
      }
      const pieces = reader.end();
      usage.reasoningTokens += reader.reasoningTokens;
      if (pieces.length > 0) yield* spread(sample, pieces, []);
      const hasCalls = pieces.some(({ type }) => type === "calls");
      yield { sample, tokens: [], stopReason: event.stopReason, hasCalls };
    }
  }
}

/** The answers, once all their events were read. */
export async function wholeAnswers(
  events: AsyncIterable<AnswerEvent>,
  numSamples: number,
): Promise<readonly WholeAnswer[]> {
  const answers = Array.from({ length: numSamples }, () => ({
    pieces: [] as AnswerPiece[],
    tokens: [] as AnswerToken[],
    stopReason: "stop" as StopReason,
    hasCalls: false,
  }));
  for await (const { sample, piece, tokens, stopReason, hasCalls = false } of events) {
    const answer = answers[sample]!;
    if (piece !== undefined) addPiece(answer.pieces, piece);
    answer.tokens.push(...tokens);
    if (stopReason !== undefined) Object.assign(answer, { stopReason, hasCalls });
  }
  return answers;
}

/** Adds a piece to an answer; neighbours of one type become one. */
export function addPiece(pieces: AnswerPiece[], piece: AnswerPiece): void {
  const last = pieces.at(-1);
  if (piece.type === "calls" || last?.type !== piece.type) pieces.push(piece);
  else pieces[pieces.length - 1] = { ...piece, text: last.text + piece.text };
}

/** The tokens come with the first of their pieces. */
function spread(
  sample: number,
  pieces: readonly AnswerPiece[],
  tokens: readonly AnswerToken[],
): AnswerEvent[] {
  if (pieces.length === 0) return [{ sample, tokens }];
  return pieces.map((piece, place) => ({ sample, piece, tokens: place === 0 ? tokens : [] }));
}
