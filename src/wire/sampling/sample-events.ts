import { TinkerError } from "../../errors.js";
import { isRecord, readAnswer } from "../reading.js";
import { sampleFuture } from "./sample-json.js";
import type { SampleResponse, StopReason } from "./sampling-types.js";

const MAX_EVENT_CHARACTERS = 64 * 2 ** 20;

/** One token of a sample, as soon as it is drawn. */
export interface SampledPiece {
  /** Which sample of the request. */
  readonly sequence: number;
  /** Which token of the sample. */
  readonly position: number;
  readonly token: number;
  /**
   * Text that the tokens up to this one add: nothing while a character is not whole, or while a stop text may
   * be beginning, which is never shown. Undefined if no tokenizer of the model is available.
   */
  readonly text: string | undefined;
  readonly logprob: number;
  /** The likeliest tokens at this position with their logprobs, if they were requested. */
  readonly topk?: readonly (readonly [tokenId: number, logprob: number])[];
  /** On the last token of a sample: why it ended. */
  readonly stopReason?: StopReason;
}

/** An event of a sample while it is being drawn; the last `done` has the whole result. */
export type SampleEvent =
  | ({ readonly type: "token" } & SampledPiece)
  | {
      readonly type: "done";
      readonly sequence: number;
      readonly stopReason: StopReason;
      readonly totalTokens: number;
      readonly result?: SampleResponse | undefined;
    }
  | { readonly type: "error"; readonly error: string; readonly category: string };

/** A server-sent event. */
export function encodeSampleEvent(event: SampleEvent): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(dataOf(event))}\n\n`;
}

/** Nothing to readers; keeps proxies from closing a connection on which nothing moves. */
export const KEEP_ALIVE_EVENT = ": still at it\n\n";

function dataOf(event: SampleEvent): unknown {
  switch (event.type) {
    case "token":
      return {
        token: event.text ?? null,
        token_id: event.token,
        index: event.position,
        logprob: event.logprob,
        sequence: event.sequence,
        topk_logprobs: event.topk,
        finish_reason: event.stopReason,
      };
    case "done":
      return {
        finish_reason: event.stopReason,
        total_tokens: event.totalTokens,
        sequence: event.sequence,
        result: event.result && sampleFuture.toJson(event.result),
      };
    case "error":
      return { error: event.error, category: event.category };
    default:
      return event satisfies never;
  }
}

/** Reads server-sent events from text that comes in pieces; events of other kinds and comments are passed over. */
export class SampleEventReader {
  /** Read since the last event ended. */
  #characters = 0;
  /** The beginning of a line whose end has not come. */
  #line = "";
  #endedWithReturn = false;
  #name = "";
  #data: string[] = [];

  push(piece: string): SampleEvent[] {
    const events: SampleEvent[] = [];
    // The two halves of \r\n may come apart.
    const text = this.#endedWithReturn && piece.startsWith("\n") ? piece.slice(1) : piece;
    if (piece !== "") this.#endedWithReturn = piece.endsWith("\r");
    const lines = text.split(/\r\n|\r|\n/);
    const last = lines.pop()!;
    this.#characters += piece.length;
    if (this.#characters > MAX_EVENT_CHARACTERS)
      throw new TinkerError(
        `The server's stream has an event of more than ${MAX_EVENT_CHARACTERS} characters.`,
      );
    for (const line of lines) {
      const event = this.#take(this.#line + line);
      this.#line = "";
      if (event !== undefined) events.push(event);
    }
    this.#line += last;
    return events;
  }

  #take(line: string): SampleEvent | undefined {
    if (line === "") return this.#end();
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#name = value;
    else if (field === "data") this.#data.push(value);
    return undefined;
  }

  #end(): SampleEvent | undefined {
    const name = this.#name;
    const data = this.#data.join("\n");
    this.#name = "";
    this.#data = [];
    this.#characters = 0;
    return data === "" ? undefined : readAnswer("stream", () => readEvent(name, JSON.parse(data)));
  }
}

function readEvent(name: string, data: unknown): SampleEvent | undefined {
  if (!isRecord(data)) throw new Error(`the data of ${name || "an event"} is not an object`);
  const sequence = data["sequence"] === undefined ? 0 : count(data, "sequence");
  const { logprob, topk_logprobs: topk, finish_reason: stopReason, token: text, error } = data;
  switch (name) {
    case "token":
      return {
        type: "token",
        sequence,
        position: count(data, "index"),
        token: count(data, "token_id"),
        text: typeof text === "string" ? text : undefined,
        logprob: typeof logprob === "number" ? logprob : Number.NaN,
        ...(Array.isArray(topk) ? { topk } : {}),
        ...(typeof stopReason === "string" ? { stopReason } : {}),
      };
    case "done":
      return {
        type: "done",
        sequence,
        stopReason: typeof stopReason === "string" ? stopReason : "stop",
        totalTokens: count(data, "total_tokens"),
        result: data["result"] === undefined ? undefined : sampleFuture.fromJson(data["result"]),
      };
    case "error":
      return {
        type: "error",
        error: typeof error === "string" ? error : JSON.stringify(error ?? data),
        category: typeof data["category"] === "string" ? data["category"] : "unknown",
      };
    default:
      return undefined;
  }
}

function count(data: Record<string, unknown>, name: string): number {
  const value = data[name];
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw new Error(`${name} must be a whole number, got ${JSON.stringify(value)}`);
}
