import {
  EngineInputError,
  type OnToken,
  type SampleCall,
  type SampledSequence,
  type SampledToken,
  type SampleResult,
  type TopTokens,
} from "../engine.js";
import { chooseToken, likeliestTokens } from "../kernels/token-choice.js";
import type { ModelConfig } from "../model/model-config.js";
import { uniform } from "../philox.js";
import type { Adapter } from "../training/adapter.js";
import { type JsonCursor, type JsonVocabulary, jsonStart } from "./json/json-sampling.js";
import type { Lane } from "./lanes.js";
import { PAGE_SIZE, type PrefixNode } from "./page-pool.js";
import { type Decode, StopCondition } from "./stop-condition.js";

/** Streams of random numbers: the fourth word of the counter. */
const SAMPLE_STREAM = 0;
const ALTERNATIVE_STREAM = 1;

/** One sample of a request, as far as it has come. */
export interface UnfinishedSample {
  readonly index: number;
  readonly record: SequenceRecord;
}

/** One sampling request on its way: what is asked, what has been computed of the prompt, and the samples so far. */
export class SampleProgress {
  readonly call: SampleCall;
  readonly lane: Lane;
  readonly adapter: Adapter | undefined;
  readonly stop: StopCondition;
  readonly seed: number;
  readonly maxTokens: number;
  readonly promise: Promise<SampleResult>;
  readonly onToken: OnToken | undefined;
  /** The first prompt row whose logits are wanted. */
  readonly logitsFrom: number;
  /** Prompt tokens whose keys and values are in `pages`. */
  computed = 0;
  pages: number[] = [];
  node: PrefixNode = 0;
  /** The pages set aside at admission serve one sample at a time; the others need their own. */
  ownReservationFree = true;
  /** Known since it was first let in. */
  cacheHitTokens: number | undefined;
  /** Logits behind the last prompt token, from which every sample begins. */
  last: { logits: Float32Array; logSumExp: number } | undefined;
  /** Samples that lost their pages to others, to be continued from their tokens. */
  readonly interrupted: UnfinishedSample[] = [];
  /** Tokens sampled since it was let in. */
  tokensThisTurn = 0;
  /** Steps in which there was no room for it although nothing of its lane ran. */
  passedOver = 0;
  settled = false;
  readonly #sequences: SampledSequence[] = [];
  readonly #result: SampleResult;
  /** Where every sample of a request for JSON begins. */
  readonly #json: (() => JsonCursor) | undefined;
  #startedSamples = 0;
  #remaining: number;
  #resolve!: (result: SampleResult) => void;
  #reject!: (error: unknown) => void;

  constructor(
    call: SampleCall,
    lane: Lane,
    adapter: Adapter | undefined,
    config: ModelConfig,
    options: { decode: Decode | undefined; json: JsonVocabulary | undefined; freshSeed: () => number },
    onToken?: OnToken,
  ) {
    const { decode, freshSeed } = options;
    if (call.stopStrings.length > 0 && !decode) {
      throw new EngineInputError(
        "stop strings need a tokenizer.json in the model's folder, and there is none",
      );
    }
    this.call = call;
    this.lane = lane;
    this.adapter = adapter;
    this.onToken = onToken;
    this.stop = new StopCondition(call.stopTokens ?? config.eosTokenIds, call.stopStrings, decode);
    this.seed = call.seed ?? freshSeed();
    const length = call.prompt.length;
    // The last token is not read again, so it needs no position.
    this.maxTokens = Math.min(call.maxTokens, config.maxPositions + 1 - length);
    this.#json = call.constraint && jsonStart(call, call.constraint, config, this.maxTokens, options.json);
    this.#remaining = call.numSamples;
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    const scored = call.promptLogprobs || call.topkPromptLogprobs > 0;
    const first = [length - 1];
    if (scored) first.push(Math.max(0, length - 1 - (call.promptLogprobsLastN ?? length)));
    if (call.targetPromptTokens || call.promptAltTokens > 0) first.push(0);
    this.logitsFrom = Math.min(...first);
    this.#result = {
      sequences: this.#sequences,
      promptCacheHitTokens: 0,
      ...(call.promptLogprobs ? { promptLogprobs: new Float32Array(length).fill(Number.NaN) } : {}),
      ...(call.topkPromptLogprobs > 0 ? { topkPrompt: emptyTopTokens(length, call.topkPromptLogprobs) } : {}),
      ...(call.targetPromptTokens
        ? { targetPrompt: new Float32Array(call.targetPromptTokens.ids.length) }
        : {}),
      ...(call.promptAltTokens > 0 ? { alt: emptyTopTokens(length - 1, call.promptAltTokens) } : {}),
    };
  }

  get length(): number {
    return this.call.prompt.length;
  }

  /** Pages of the prompt that all samples share. */
  get sharedPages(): number {
    return Math.floor(this.length / PAGE_SIZE);
  }

  /** Pages that one sample needs beside the shared ones. */
  get pagesPerSample(): number {
    const positions = this.length + Math.max(0, this.maxTokens - 1);
    return Math.ceil(positions / PAGE_SIZE) - this.sharedPages;
  }

  /** What must be set aside before the request starts: the prompt and one sample. */
  get pagesAtLeast(): number {
    return this.sharedPages + 1 + this.pagesPerSample;
  }

  /** Some of its samples are not running yet, and can. */
  get hasSampleToStart(): boolean {
    if (this.last === undefined || this.settled) return false;
    return this.interrupted.length > 0 || this.#startedSamples < this.call.numSamples;
  }

  /** The sample to start next: one that was interrupted, or a new one. */
  nextSample(): UnfinishedSample {
    const interrupted = this.interrupted.shift();
    if (interrupted !== undefined) return interrupted;
    this.#startedSamples += 1;
    return {
      index: this.#startedSamples - 1,
      record: new SequenceRecord(this.call.topkSampleLogprobs, this.#json?.()),
    };
  }

  /** The logits behind prompt position `position` have been computed. */
  scorePrompt(position: number, logits: Float32Array, logSumExp: number): void {
    if (position === this.length - 1) {
      this.last = { logits: logits.slice(), logSumExp };
      return;
    }
    const { call } = this;
    const { promptLogprobs, topkPrompt, targetPrompt, alt } = this.#result;
    const logprob = (token: number) => Math.fround(logits[token]! - logSumExp);
    const scored = position + 1 >= this.length - (call.promptLogprobsLastN ?? this.length);
    if (promptLogprobs && scored) promptLogprobs[position + 1] = logprob(call.prompt[position + 1]!);
    if (topkPrompt && scored) writeTopTokens(topkPrompt, position + 1, logits, logSumExp);
    if (targetPrompt && call.targetPromptTokens) {
      const { ids, columns } = call.targetPromptTokens;
      for (let cell = position * columns; cell < (position + 1) * columns; cell++) {
        if (ids[cell]! >= 0) targetPrompt[cell] = logprob(ids[cell]!);
      }
    }
    if (alt) {
      const choice = { temperature: call.temperature, topK: -1, topP: 1 };
      for (let column = 0; column < alt.columns; column++) {
        const random = uniform(this.seed, [position + 1, column, 0, ALTERNATIVE_STREAM]);
        const token = chooseToken(logits, choice, random);
        alt.tokens[position * alt.columns + column] = token;
        alt.logprobs[position * alt.columns + column] = logprob(token);
      }
    }
  }

  /** The next token of sample `index`; depends on nothing but the logits, the seed and the tokens so far. */
  choose(logits: Float32Array, index: number, { generated, json }: SequenceRecord): number {
    const random = uniform(this.seed, [generated.length, index, 0, SAMPLE_STREAM]);
    return chooseToken(json?.mask(logits) ?? logits, this.call, random);
  }

  finishSample(index: number, sequence: SampledSequence): void {
    this.#sequences[index] = sequence;
    this.#remaining -= 1;
    if (this.#remaining > 0) return;
    this.settled = true;
    this.#result.promptCacheHitTokens = this.cacheHitTokens ?? 0;
    this.#resolve(this.#result);
  }

  fail(error: unknown): void {
    this.settled = true;
    this.#reject(error);
  }
}

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

  push(token: number, logits: Float32Array, logSumExp: number): Pick<SampledToken, "logprob" | "topk"> {
    const logprob = Math.fround(logits[token]! - logSumExp);
    this.generated.push(token);
    this.json?.take(token);
    this.#logprobs.push(logprob);
    if (!this.#topk) return { logprob };
    const topk = emptyTopTokens(1, this.#columns);
    writeTopTokens(topk, 0, logits, logSumExp);
    this.#topk.tokens.push(...topk.tokens);
    this.#topk.logprobs.push(...topk.logprobs);
    return { logprob, topk };
  }

  finish(stopReason: "stop" | "length"): SampledSequence {
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
function emptyTopTokens(rows: number, columns: number): TopTokens {
  return {
    columns,
    tokens: new Int32Array(rows * columns),
    logprobs: new Float32Array(rows * columns).fill(-99999),
  };
}

/** Writes the likeliest tokens of one row of logits into row `row`. */
function writeTopTokens(table: TopTokens, row: number, logits: Float32Array, logSumExp: number): void {
  likeliestTokens(logits, table.columns).forEach((token, column) => {
    table.tokens[row * table.columns + column] = token;
    table.logprobs[row * table.columns + column] = logits[token]! - logSumExp;
  });
}
