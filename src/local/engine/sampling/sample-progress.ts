import {
  EngineInputError,
  type EngineSample,
  type OnToken,
  type SampleCall,
  type SampleResult,
} from "../engine.js";
import { chooseToken } from "../kernels/token-choice.js";
import type { ModelConfig } from "../model/model-config.js";
import { uniform } from "../philox.js";
import type { LoraAdapter } from "../training/adapter.js";
import {
  type JsonCursor,
  type JsonGrammar,
  type JsonStart,
  type JsonVocabulary,
  jsonStart,
} from "./json/json-sampling.js";
import type { Lane } from "./lanes.js";
import type { LogitAnswer, LogitQuestion } from "./logit-answers.js";
import { PAGE_SIZE, type PrefixNode } from "./page-pool.js";
import { emptyTopTokens, type NextToken, SequenceRecord, writeTopTokens } from "./sequence-record.js";
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
  readonly adapter: LoraAdapter | undefined;
  readonly stop: StopCondition;
  readonly seed: number;
  readonly maxTokens: number;
  readonly promise: Promise<SampleResult>;
  readonly onToken: OnToken | undefined;
  /** The first prompt position whose logits were requested. */
  readonly logitsFrom: number;
  /** Prompt tokens whose keys and values are in `pages`. */
  computed = 0;
  pages: number[] = [];
  node: PrefixNode = 0;
  /** The pages set aside at admission serve one sample at a time; the others need their own. */
  ownReservationFree = true;
  /** Known since it was first let in. */
  cacheHitTokens: number | undefined;
  /** Samples that lost their pages to others, to be continued from their tokens. */
  readonly interrupted: UnfinishedSample[] = [];
  /** Tokens sampled since it was let in. */
  tokensThisTurn = 0;
  /** Steps in which there was no room for it although nothing of its lane ran. */
  passedOver = 0;
  settled = false;
  readonly #sequences: EngineSample[] = [];
  readonly #result: SampleResult;
  /** Where every sample of a request for JSON begins. */
  #json: JsonStart | undefined;
  #compile: (() => JsonStart) | undefined;
  /** Drawn for all samples as soon as the prompt is known. */
  #firstTokens: NextToken[] | undefined;
  #startedSamples = 0;
  #remaining: number;
  #resolve!: (result: SampleResult) => void;
  #reject!: (error: unknown) => void;

  constructor(
    call: SampleCall,
    lane: Lane,
    adapter: LoraAdapter | undefined,
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
    this.#compile =
      call.constraint && (() => jsonStart(call, call.constraint!, config, this.maxTokens, options.json));
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

  /** A request for JSON that `prepare` was not called for. */
  get isUnprepared(): boolean {
    return this.#compile !== undefined;
  }

  /** The grammar of a request for JSON, once it is prepared. */
  get grammar(): JsonGrammar | undefined {
    return this.#json?.grammar;
  }

  /** Compiles the schema of a request for JSON; throws where it cannot be kept to. */
  prepare(): void {
    this.#json ??= this.#compile?.();
    this.#compile = undefined;
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

  /** Pages to reserve before the request starts: for the prompt and one sample. */
  get pagesAtLeast(): number {
    return this.sharedPages + 1 + this.pagesPerSample;
  }

  /** Some of its samples are not running yet, and can. */
  get hasSampleToStart(): boolean {
    if (this.computed < this.length || this.settled) return false;
    return this.interrupted.length > 0 || this.#startedSamples < this.call.numSamples;
  }

  /** The sample to start next: one that was interrupted, or a new one. */
  nextSample(): UnfinishedSample {
    const interrupted = this.interrupted.shift();
    if (interrupted !== undefined) return interrupted;
    this.#startedSamples += 1;
    return {
      index: this.#startedSamples - 1,
      record: new SequenceRecord(this.call.topkSampleLogprobs, this.#json?.begin()),
    };
  }

  /** The question about the logits behind prompt position `position`. */
  promptQuestion(position: number): LogitQuestion {
    const { call } = this;
    if (position === this.length - 1) {
      return this.#nextQuestion(this.maxTokens === 0 || this.#firstTokens ? [] : this.#allSamples, 0);
    }
    const { ids, columns } = call.targetPromptTokens ?? { ids: [], columns: 0 };
    const cells = Array.from(ids.slice(position * columns, (position + 1) * columns));
    const choice = { temperature: call.temperature, topK: -1, topP: 1 };
    return {
      draws: Array.from({ length: call.promptAltTokens }, (_, column) => ({
        ...choice,
        random: uniform(this.seed, [position + 1, column, 0, ALTERNATIVE_STREAM]),
      })),
      targets: [call.prompt[position + 1]!, ...cells.map((id) => Math.max(0, id))],
      topTokens: this.#isScored(position) ? call.topkPromptLogprobs : 0,
      wantsLogits: false,
    };
  }

  /** The answer to `promptQuestion`. */
  scorePrompt(position: number, answer: LogitAnswer): void {
    if (position === this.length - 1) {
      if (this.maxTokens > 0)
        this.#firstTokens ??= this.#nextTokens(this.#allSamples, 0, this.#json?.begin(), answer);
      return;
    }
    const { promptLogprobs, topkPrompt, targetPrompt, alt } = this.#result;
    const [logprob, ...cells] = answer.targetLogprobs;
    const scored = this.#isScored(position);
    if (promptLogprobs && scored) promptLogprobs[position + 1] = logprob!;
    if (topkPrompt && scored) writeTopTokens(topkPrompt, position + 1, answer.top);
    if (targetPrompt && this.call.targetPromptTokens) {
      const { ids, columns } = this.call.targetPromptTokens;
      cells.forEach((value, column) => {
        const cell = position * columns + column;
        if (ids[cell]! >= 0) targetPrompt[cell] = value;
      });
    }
    if (alt) {
      answer.draws.forEach(({ token, logprob }, column) => {
        alt.tokens[position * alt.columns + column] = token;
        alt.logprobs[position * alt.columns + column] = logprob;
      });
    }
  }

  #isScored(position: number): boolean {
    return position + 1 >= this.length - (this.call.promptLogprobsLastN ?? this.length);
  }

  get #allSamples(): number[] {
    return [...new Array(this.call.numSamples).keys()];
  }

  firstToken(index: number): NextToken {
    return this.#firstTokens![index]!;
  }

  /** The question about the logits behind the tokens of sample `index` so far. */
  sampleQuestion(index: number, { generated }: SequenceRecord): LogitQuestion {
    return this.#nextQuestion([index], generated.length);
  }

  /** The answer to `sampleQuestion`. */
  nextToken(index: number, { generated, json }: SequenceRecord, answer: LogitAnswer): NextToken {
    return this.#nextTokens([index], generated.length, json, answer)[0]!;
  }

  #nextQuestion(samples: number[], position: number): LogitQuestion {
    const wantsLogits = this.#json !== undefined && samples.length > 0;
    return {
      draws: wantsLogits ? [] : samples.map((index) => this.#draw(index, position)),
      targets: [],
      topTokens: samples.length > 0 ? this.call.topkSampleLogprobs : 0,
      wantsLogits,
    };
  }

  #nextTokens(
    samples: number[],
    position: number,
    json: JsonCursor | undefined,
    { draws, top, logits, logSumExp }: LogitAnswer,
  ): NextToken[] {
    const allowed = logits && json?.mask(logits);
    return samples.map((index, at) => {
      let drawn = draws[at]!;
      if (allowed) {
        const draw = this.#draw(index, position);
        const token = chooseToken(allowed, draw, draw.random);
        drawn = { token, logprob: Math.fround(logits[token]! - logSumExp) };
      }
      if (this.call.topkSampleLogprobs === 0) return drawn;
      const topk = emptyTopTokens(1, this.call.topkSampleLogprobs);
      writeTopTokens(topk, 0, top);
      return { ...drawn, topk };
    });
  }

  /** Depends on nothing but the seed and the place of the token. */
  #draw(index: number, position: number): LogitQuestion["draws"][number] {
    const { temperature, topK, topP } = this.call;
    return { temperature, topK, topP, random: uniform(this.seed, [position, index, 0, SAMPLE_STREAM]) };
  }

  finishSample(index: number, sequence: EngineSample): void {
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
