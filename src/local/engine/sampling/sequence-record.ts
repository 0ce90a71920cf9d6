import type { EngineSample, SampledToken, TopTokens } from "../engine.js";
import type { JsonCursor } from "./json/json-sampling.js";
import type { LogitAnswer } from "./logit-answers.js";

/** A token that a sample goes on with. */
export type NextToken = Pick<SampledToken, "token" | "logprob" | "topk">;

/** Logprobs and tokens of one sample while it grows. */
export class SequenceRecord {
  readonly generated: number[] = [];
  /** Where it is in the JSON that it has to be. */
  readonly json: JsonCursor | undefined;
  readonly #logprobs: number[] = [];
  readonly #topk: { tokens: number[]; logprobs: number[] } | undefined;
  readonly #columns: number;

  constructor(topkColumns: number, json?: JsonCursor) {
    this.json = json;
    this.#columns = topkColumns;
    this.#topk = topkColumns > 0 ? { tokens: [], logprobs: [] } : undefined;
  }

  push({ token, logprob, topk }: NextToken): void {
    this.generated.push(token);
    this.json?.take(token);
    this.#logprobs.push(logprob);
    this.#topk?.tokens.push(...(topk?.tokens ?? []));
    this.#topk?.logprobs.push(...(topk?.logprobs ?? []));
  }

  finish(stopReason: "stop" | "length"): EngineSample {
    const topk: { topk?: TopTokens } = this.#topk
      ? {
          topk: {
            columns: this.#columns,
            tokens: Int32Array.from(this.#topk.tokens),
            logprobs: Float32Array.from(this.#topk.logprobs),
          },
        }
      : {};
    return {
      tokens: Int32Array.from(this.generated),
      logprobs: Float32Array.from(this.#logprobs),
      stopReason,
      ...topk,
    };
  }
}

/** An empty table: token 0 with logprob -99999 marks a cell without an entry. */
export function emptyTopTokens(rows: number, columns: number): TopTokens {
  return {
    columns,
    tokens: new Int32Array(rows * columns),
    logprobs: new Float32Array(rows * columns).fill(-99999),
  };
}

/** Writes one row of a table; what the answer does not have stays empty. */
export function writeTopTokens(
  table: TopTokens,
  row: number,
  { tokens, logprobs }: LogitAnswer["top"],
): void {
  table.tokens.set(tokens, row * table.columns);
  table.logprobs.set(logprobs, row * table.columns);
}
