/** One sampling request on its way: what is asked, what has been computed of the prompt, and the samples so far. */

import {
  EngineInputError,
  type SampleCall,
  type SampledSequence,
  type SampleResult,
  type TopTokens,
} from "../engine.js";
import type { ModelConfig } from "../model/model-config.js";
import { uniform } from "../philox.js";
import type { Adapter } from "../training/adapter.js";
import { type PrefixNode, pageSize } from "./page-pool.js";
import { StopCondition } from "./stop-condition.js";
import { chooseToken, emptyTopTokens, writeTopTokens } from "./token-choice.js";

/** Streams of random numbers: the fourth word of the counter. */
const sampleStream = 0;
const alternativeStream = 1;

export class SampleProgress {
  readonly call: SampleCall;
  readonly adapter: Adapter | null;
  readonly stop: StopCondition;
  readonly seed: number;
  readonly maxTokens: number;
  readonly promise: Promise<SampleResult>;
  /** The first prompt row whose logits are wanted. */
  readonly logitsFrom: number;
  /** Prompt tokens whose keys and values are in `pages`. */
  computed = 0;
  pages: number[] = [];
  node: PrefixNode = 0;
  /** The pages set aside at admission serve one sample at a time; the others need their own. */
  ownReservationFree = true;
  cacheHitTokens = 0;
  /** Logits behind the last prompt token, from which every sample begins. */
  last: { logits: Float32Array; lse: number } | null = null;
  startedSamples = 0;
  settled = false;
  readonly #sequences: SampledSequence[] = [];
  readonly #result: SampleResult;
  #remaining: number;
  #resolve!: (result: SampleResult) => void;
  #reject!: (error: unknown) => void;

  constructor(
    call: SampleCall,
    adapter: Adapter | null,
    config: ModelConfig,
    decode: ((tokens: number[]) => string) | null,
    freshSeed: () => number,
  ) {
    checkSampleCall(call, config, decode !== null);
    this.call = call;
    this.adapter = adapter;
    this.stop = new StopCondition(call.stopTokens ?? config.eosTokenIds, call.stopStrings, decode);
    this.seed = call.seed ?? freshSeed();
    const length = call.prompt.length;
    this.maxTokens = Math.min(call.maxTokens, config.maxPositions - length);
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
    return Math.floor(this.length / pageSize);
  }

  /** Pages that one sample needs beside the shared ones. */
  get pagesPerSample(): number {
    return Math.ceil((this.length + this.maxTokens) / pageSize) - this.sharedPages;
  }

  /** What must be set aside before the request starts: the prompt and one sample. */
  get pagesAtLeast(): number {
    return this.sharedPages + 1 + this.pagesPerSample;
  }

  /** The logits behind prompt position `position` have been computed. */
  scorePrompt(position: number, logits: Float32Array, lse: number): void {
    if (position === this.length - 1) {
      this.last = { logits: logits.slice(), lse };
      return;
    }
    const { call } = this;
    const { promptLogprobs, topkPrompt, targetPrompt, alt } = this.#result;
    const logprob = (token: number) => Math.fround(logits[token]! - lse);
    const scored = position + 1 >= this.length - (call.promptLogprobsLastN ?? this.length);
    if (promptLogprobs && scored) promptLogprobs[position + 1] = logprob(call.prompt[position + 1]!);
    if (topkPrompt && scored) writeTopTokens(topkPrompt, position + 1, logits, lse);
    if (targetPrompt && call.targetPromptTokens) {
      const { ids, columns } = call.targetPromptTokens;
      for (let cell = position * columns; cell < (position + 1) * columns; cell++) {
        if (ids[cell]! >= 0) targetPrompt[cell] = logprob(ids[cell]!);
      }
    }
    if (alt) {
      const choice = { temperature: call.temperature, topK: -1, topP: 1 };
      for (let column = 0; column < alt.columns; column++) {
        const random = () => uniform(this.seed, [position + 1, column, 0, alternativeStream]);
        const token = chooseToken(logits, choice, random);
        alt.tokens[position * alt.columns + column] = token;
        alt.logprobs[position * alt.columns + column] = logprob(token);
      }
    }
  }

  /** The token that sample `index` takes as its `count`-th; depends on nothing but the logits, the seed and these. */
  choose(logits: Float32Array, index: number, count: number): number {
    return chooseToken(logits, this.call, () => uniform(this.seed, [count, index, 0, sampleStream]));
  }

  finishSample(index: number, sequence: SampledSequence): void {
    this.#sequences[index] = sequence;
    this.#remaining -= 1;
    if (this.#remaining > 0) return;
    this.settled = true;
    this.#result.promptCacheHitTokens = this.cacheHitTokens;
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
  readonly #logprobs: number[] = [];
  readonly #topk: { tokens: number[]; logprobs: number[] } | null;
  readonly #columns: number;

  constructor(topkColumns: number) {
    this.#columns = topkColumns;
    this.#topk = topkColumns > 0 ? { tokens: [], logprobs: [] } : null;
  }

  push(token: number, logits: Float32Array, lse: number): void {
    this.generated.push(token);
    this.#logprobs.push(Math.fround(logits[token]! - lse));
    if (!this.#topk) return;
    const row = emptyTopTokens(1, this.#columns);
    writeTopTokens(row, 0, logits, lse);
    this.#topk.tokens.push(...row.tokens);
    this.#topk.logprobs.push(...row.logprobs);
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

function checkSampleCall(call: SampleCall, config: ModelConfig, hasTokenizer: boolean): void {
  const { prompt } = call;
  const refuse = (what: string) => {
    throw new EngineInputError(what);
  };
  if (prompt.length === 0) refuse("prompt is empty");
  if (prompt.length > config.maxPositions) {
    refuse(`prompt has ${prompt.length} tokens, the model's context is ${config.maxPositions}`);
  }
  const bad = prompt.findIndex((token) => token < 0 || token >= config.vocabSize);
  if (bad >= 0) refuse(`prompt[${bad}] is token ${prompt[bad]}, the vocabulary has ${config.vocabSize}`);
  if (!Number.isInteger(call.numSamples) || call.numSamples < 1) {
    refuse(`num_samples must be a whole number of at least 1, got ${call.numSamples}`);
  }
  if (!Number.isInteger(call.maxTokens) || call.maxTokens < 0) {
    refuse(`max_tokens must be a whole number of at least 0, got ${call.maxTokens}`);
  }
  if (!(call.temperature >= 0)) refuse(`temperature must be at least 0, got ${call.temperature}`);
  if (!(call.topP > 0 && call.topP <= 1)) refuse(`top_p must be above 0 and at most 1, got ${call.topP}`);
  if (call.stopStrings.length > 0 && !hasTokenizer) {
    refuse("stop strings need a tokenizer.json in the model's folder, and there is none");
  }
  for (const [name, columns] of [
    ["topk_prompt_logprobs", call.topkPromptLogprobs],
    ["topk_sample_logprobs", call.topkSampleLogprobs],
    ["prompt_alt_tokens_k", call.promptAltTokens],
  ] as const) {
    if (!Number.isInteger(columns) || columns < 0 || columns > 1024) {
      refuse(`${name} must be a whole number from 0 to 1024, got ${columns}`);
    }
  }
  const target = call.targetPromptTokens;
  if (!target) return;
  if (target.ids.length !== (prompt.length - 1) * target.columns) {
    refuse(
      `target_prompt_logprobs must have ${prompt.length - 1} rows of ${target.columns}, got ${target.ids.length} cells`,
    );
  }
  const wrong = target.ids.findIndex((token) => token < -1 || token >= config.vocabSize);
  if (wrong >= 0) {
    refuse(
      `target_prompt_logprobs cell ${wrong} is token ${target.ids[wrong]}, the vocabulary has ${config.vocabSize}`,
    );
  }
}
