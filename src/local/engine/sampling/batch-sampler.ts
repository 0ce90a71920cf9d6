import {
  CancelledError,
  EngineInputError,
  type OnToken,
  type SampleCall,
  type SampleResult,
} from "../engine.js";
import type { Kernels, StepSizes } from "../kernels/kernels.js";
import type { BaseModel } from "../model/base-model.js";
import type { LoraAdapter } from "../training/adapter.js";
import { type JsonGrammar, type JsonVocabulary, MAX_STEPS_PER_TOKEN } from "./json/json-sampling.js";
import { inTurns, type Lane, Lanes } from "./lanes.js";
import { answerQuestions, type LogitAnswer } from "./logit-answers.js";
import { PAGE_SIZE, PagePool, type PrefixNode } from "./page-pool.js";
import { PageReservations } from "./page-reservations.js";
import { pagedForward, type SequenceRows } from "./paged-forward.js";
import { SampleProgress, type UnfinishedSample } from "./sample-progress.js";
import type { NextToken } from "./sequence-record.js";
import type { Decode } from "./stop-condition.js";

/** Settings of a sampler. */
export interface BatchSamplerOptions {
  cacheBytes: number;
  /** Absent where the model has no tokenizer. */
  decode: Decode | undefined;
  /** Absent where the model has no tokenizer. */
  json: JsonVocabulary | undefined;
  freshSeed: () => number;
}

/** A request that asks for no more tokens does not wait behind the long ones of its own session and adapter. */
const MAX_SHORT_TOKENS = 64;
/** References of 8 bytes in the grammars that an owner's requests use at one time; the last one may exceed it. */
const MAX_GRAMMARS_IN_USE = 1_250_000;

interface RunningSample extends UnfinishedSample {
  request: SampleProgress;
  tokens: number[];
  /** Tokens whose keys and values are in `pages`: all but the last, or fewer after an interruption. */
  computed: number;
  pages: number[];
  node: PrefixNode;
  /** Its own reservation; absent when it uses the one its request came in with. */
  reservedPages: number | undefined;
}

/** A page whose content another one needs. */
interface PageCopy {
  from: number;
  to: number;
}

/** Rows of the next forward pass, and who waits for them. */
interface PlannedRows {
  request: SampleProgress;
  rows: SequenceRows;
  version: number;
  /** Takes an answer for each of the rows' questions. */
  consume(answers: LogitAnswer[]): void;
}

/** Samples for many requests at once: every step advances each running sample by one token and prompts by a chunk. */
export class BatchSampler {
  readonly #kernels: Kernels;
  readonly #sizes: StepSizes;
  readonly #model: BaseModel;
  readonly #options: BatchSamplerOptions;
  readonly #pool: PagePool;
  readonly #lanes = new Lanes();
  readonly #reservations: PageReservations;
  #turn = 0;
  #waiting: SampleProgress[] = [];
  /** Admitted, in order: prompts being computed, then samples being started. */
  #active: SampleProgress[] = [];
  #running: RunningSample[] = [];

  constructor(kernels: Kernels, model: BaseModel, options: BatchSamplerOptions) {
    this.#kernels = kernels;
    this.#sizes = sizesFor(kernels, model.config.vocabSize);
    this.#model = model;
    this.#options = options;
    this.#pool = new PagePool(kernels, model.config, options.cacheBytes);
    this.#reservations = new PageReservations(this.#lanes, this.#pool.maxPages);
  }

  /** Positions of the longest sequence, prompt and sample without its last token, that the key-value cache holds. */
  get maxSequenceTokens(): number {
    return (this.#pool.maxPages - 1) * PAGE_SIZE;
  }

  get hasWork(): boolean {
    return this.#waiting.length + this.#active.length + this.#running.length > 0;
  }

  submit(call: SampleCall, adapter: LoraAdapter | undefined, onToken?: OnToken): Promise<SampleResult> {
    const isShort = call.numSamples * call.maxTokens <= MAX_SHORT_TOKENS;
    const lane = this.#lanes.enter(call, adapter?.version ?? 0, isShort);
    let request: SampleProgress;
    try {
      request = new SampleProgress(call, lane, adapter, this.#model.config, this.#options, onToken);
    } catch (error) {
      this.#lanes.leave(lane);
      throw error;
    }
    const needed = request.pagesAtLeast;
    if (needed > this.#pool.maxPages) {
      this.#lanes.leave(lane);
      throw new EngineInputError(
        `prompt and sample together take ${needed * PAGE_SIZE} tokens of key-value cache, there is room for ${
          this.#pool.maxPages * PAGE_SIZE
        }`,
      );
    }
    this.#waiting.push(request);
    return request.promise;
  }

  cancel(requestId: string, error: Error): void {
    for (const request of [
      ...this.#waiting,
      ...this.#active,
      ...this.#running.map((sample) => sample.request),
    ]) {
      if (request.call.requestId === requestId && !request.settled) {
        request.fail(error);
      }
    }
  }

  /** One forward pass over everything that runs. */
  async step(): Promise<void> {
    this.#sweep();
    this.#turn += 1;
    this.#admit();
    const prompts = this.#planPrompts();
    const promptRows = prompts.reduce((sum, { rows }) => sum + rows.count, 0);
    const planned = [...prompts, ...this.#planSamples(this.#sizes.promptRows - promptRows)]
      .filter((plan) => !plan.request.settled)
      .sort((a, b) => a.version - b.version);
    if (planned.length > 0) {
      try {
        await this.#forward(planned);
      } catch (error) {
        this.#failAll(error);
      }
    }
    this.#startSamples();
    this.#sweep();
  }

  close(): void {
    this.#failAll(new CancelledError("the engine was closed"));
    for (const request of this.#waiting) request.fail(new CancelledError("the engine was closed"));
    this.#sweep();
    this.#pool.close();
  }

  async #forward(planned: PlannedRows[]): Promise<void> {
    const kernels = this.#kernels;
    const mark = kernels.mark();
    try {
      const sequences = planned.map((plan) => plan.rows);
      const logits = pagedForward(kernels, this.#model, this.#pool, sequences);
      const answers = await answerQuestions(kernels, logits);
      let answered = 0;
      const withAnswers = planned.map((plan) => {
        const own = answers.slice(answered, answered + plan.rows.questions.length);
        answered += own.length;
        return { ...plan, own };
      });
      const hasTime = this.#timeForJson();
      for (const { request, consume, own } of inTurns(withAnswers, (plan) => plan.request.lane, this.#turn)) {
        // Answers that are not consumed are computed again in the next step.
        if (request.call.constraint && !hasTime()) continue;
        try {
          if (!own.every(({ logSumExp }) => Number.isFinite(logSumExp)))
            throw new EngineInputError(
              "the model's logits are not finite: the adapter has diverged, or the weights are damaged",
            );
          consume(own);
        } catch (error) {
          // One request's failure, such as a schema that takes too long to follow, is not its neighbours'.
          if (!request.settled) request.fail(error);
        }
      }
    } finally {
      kernels.release(mark);
    }
  }

  /** The samples that this step advances: all, or as many of each lane as of any other. */
  #chosen(): RunningSample[] {
    const { samples } = this.#sizes;
    if (this.#running.length <= samples) return this.#running;
    return inTurns(this.#running, ({ request }) => request.lane, this.#turn).slice(0, samples);
  }

  /** One row for each sample; those that were interrupted share `spareRows` to catch up. */
  #planSamples(spareRows: number): PlannedRows[] {
    const planned: PlannedRows[] = [];
    let spare = spareRows;
    for (const sample of this.#chosen()) {
      const { request, index, record, tokens, pages, computed: start } = sample;
      const missing = tokens.length - 1 - start;
      const count = Math.min(missing, spare) + 1;
      spare -= count - 1;
      if (!this.#takePages(request, pages, start + count)) continue;
      const questions = count > missing ? [request.sampleQuestion(index, record)] : [];
      const { adapter } = request;
      planned.push({
        request,
        version: adapter?.version ?? 0,
        rows: { lora: adapter?.weights, pages, tokens, start, count, questions },
        consume: ([answer]) => {
          sample.computed = start + count;
          sample.node = this.#registerFull(sample.node, tokens, start, start + count, pages);
          if (answer) this.#extend(sample, request.nextToken(index, record, answer));
        },
      });
    }
    return planned;
  }

  /** Makes `pages` hold so many tokens. Where memory has run out, the newest requests end until it suffices. */
  #takePages(request: SampleProgress, pages: number[], tokens: number): boolean {
    while (!request.settled && pages.length * PAGE_SIZE < tokens) {
      try {
        pages.push(this.#pool.take());
      } catch (error) {
        this.#active.at(-1)!.fail(error);
        this.#sweep();
      }
    }
    return !request.settled;
  }

  #planPrompts(): PlannedRows[] {
    const planned: PlannedRows[] = [];
    const { promptRows, promptLogits } = this.#sizes;
    let rowsLeft = promptRows;
    let scoredRowsLeft = Math.max(1, Math.floor(promptLogits / this.#model.config.vocabSize));
    const unread = this.#active.filter(({ settled, computed, length }) => !settled && computed < length);
    for (const request of inTurns(unread, ({ lane }) => lane, this.#turn)) {
      if (request.settled) continue;
      const start = request.computed;
      let count = Math.min(rowsLeft, request.length - start);
      if (request.logitsFrom < request.length - 1) {
        count = Math.min(count, scoredRowsLeft);
        scoredRowsLeft -= count;
      }
      if (count === 0) continue;
      rowsLeft -= count;
      if (!this.#takePages(request, request.pages, start + count)) continue;
      const { adapter } = request;
      const tokens = request.call.prompt;
      const first = Math.max(start, request.logitsFrom);
      const questions = Array.from({ length: Math.max(0, start + count - first) }, (_, index) =>
        request.promptQuestion(first + index),
      );
      planned.push({
        request,
        version: adapter?.version ?? 0,
        rows: { lora: adapter?.weights, pages: request.pages, tokens, start, count, questions },
        consume: (answers) => {
          request.computed = start + count;
          request.node = this.#registerFull(request.node, tokens, start, start + count, request.pages);
          answers.forEach((answer, index) => {
            request.scorePrompt(first + index, answer);
          });
        },
      });
    }
    return planned;
  }

  /** Pages that became full between two positions can be found by later prompts. */
  #registerFull(
    node: PrefixNode,
    tokens: ArrayLike<number>,
    before: number,
    after: number,
    pages: number[],
  ): PrefixNode {
    let last = node;
    for (let page = Math.floor(before / PAGE_SIZE); (page + 1) * PAGE_SIZE <= after; page++) {
      last = this.#pool.register(last, tokens, page * PAGE_SIZE, pages[page]!);
    }
    return last;
  }

  /** Whether schemas may take more time of a step that all share: once they have taken some, the rest waits for the next step. */
  #timeForJson(): () => boolean {
    const { json } = this.#options;
    const before = json?.steps ?? 0;
    return () => (json?.steps ?? 0) - before < MAX_STEPS_PER_TOKEN;
  }

  /** Whether an owner may use one more schema: each takes memory for as long as its samples run. */
  #roomForJson(): (owner: string) => boolean {
    const used = new Map<string, Set<JsonGrammar>>();
    for (const { grammar, lane, settled } of [...this.#waiting, ...this.#active])
      if (grammar && !settled) used.set(lane.owner, (used.get(lane.owner) ?? new Set()).add(grammar));
    const sizes = new Map([...used].map(([owner, grammars]) => [owner, totalSize(grammars)]));
    return (owner) => (sizes.get(owner) ?? 0) < MAX_GRAMMARS_IN_USE;
  }

  /** Lets waiting requests in, the oldest of each lane in turn. */
  #admit(): void {
    const full = new Set<Lane>();
    const admitted = new Set<SampleProgress>();
    const overdue = this.#waiting.find((request) => this.#reservations.isOverdue(request));
    const hasTime = this.#timeForJson();
    const hasRoom = this.#roomForJson();
    for (const request of overdue ? [overdue] : inTurns(this.#waiting, ({ lane }) => lane, this.#turn)) {
      if (full.size === this.#lanes.size) break;
      const { lane } = request;
      if (full.has(lane) || request.settled) continue;
      const taken = this.#active.length + this.#running.length;
      if (!this.#hasPlace(lane, taken, lane.activeRequests + lane.runningSamples)) full.add(lane);
      else if (request.isUnprepared && !(hasTime() && hasRoom(lane.owner) && prepared(request))) continue;
      else if (!this.#reservations.reserve(lane, request.pagesAtLeast) && !this.#takeRoom(request)) {
        full.add(lane);
        if (lane.reservedPages === 0) request.passedOver += 1;
      } else {
        admitted.add(request);
        this.#begin(request);
      }
    }
    if (admitted.size > 0) this.#waiting = this.#waiting.filter((request) => !admitted.has(request));
  }

  #begin(request: SampleProgress): void {
    const root = this.#pool.root(request.adapter?.version ?? 0, request.lane.owner);
    const limit = Math.min(request.length - 1, request.logitsFrom);
    const prefix = this.#pool.find(root, request.call.prompt, limit);
    request.pages = prefix.pages;
    request.node = prefix.node;
    request.computed = prefix.pages.length * PAGE_SIZE;
    request.cacheHitTokens ??= request.computed;
    request.tokensThisTurn = 0;
    request.passedOver = 0;
    request.lane.activeRequests += 1;
    this.#active.push(request);
  }

  /** A lane that has less than its share never waits for the others' samples to end. */
  #hasPlace(lane: Lane, taken: number, takenByLane: number): boolean {
    const { samples } = this.#sizes;
    return taken < samples || takenByLane < this.#lanes.shareOf(lane, samples);
  }

  /** Interrupts others for a request where they have more than their share, or it has waited for long. */
  #takeRoom(request: SampleProgress): boolean {
    const givers = this.#reservations.giversFor(request, this.#active, (giver) => this.#pagesOf(giver));
    if (givers === undefined) return false;
    for (const giver of givers) this.#interrupt(giver);
    return this.#reservations.reserve(request.lane, request.pagesAtLeast);
  }

  /** Pages reserved for a request: for its prompt and all its samples. */
  #pagesOf(request: SampleProgress): number {
    return this.#running
      .filter((sample) => sample.request === request)
      .reduce((sum, { reservedPages }) => sum + (reservedPages ?? 0), request.pagesAtLeast);
  }

  /** Takes all pages of a request; it waits in front of its lane, and computes again from its tokens what was in them. */
  #interrupt(request: SampleProgress): void {
    this.#running = this.#running.filter((sample) => {
      if (sample.request !== request) return true;
      this.#drop(sample);
      request.interrupted.push({ index: sample.index, record: sample.record });
      return false;
    });
    this.#active = this.#active.filter((other) => other !== request);
    this.#leaveActive(request);
    this.#waiting.unshift(request);
  }

  #leaveActive(request: SampleProgress): void {
    this.#pool.release(request.pages);
    request.pages = [];
    this.#reservations.release(request.lane, request.pagesAtLeast);
    request.lane.activeRequests -= 1;
  }

  #startSamples(): void {
    const copies: PageCopy[] = [];
    const ready = this.#active.filter((request) => request.hasSampleToStart);
    for (const request of inTurns(ready, ({ lane }) => lane, this.#turn)) {
      while (request.hasSampleToStart) {
        if (!this.#hasPlace(request.lane, this.#running.length, request.lane.runningSamples)) break;
        if (!this.#startSample(request, copies)) break;
      }
    }
    this.#pool.copyPages(copies);
  }

  /** The pages that it needs a copy of are added to `copies`. */
  #startSample(request: SampleProgress, copies: PageCopy[]): boolean {
    if (request.maxTokens === 0) {
      const { index, record } = request.nextSample();
      request.finishSample(index, record.finish("length"));
      return true;
    }
    const reservedPages = request.ownReservationFree ? undefined : request.pagesPerSample;
    if (reservedPages !== undefined && !this.#reservations.reserve(request.lane, reservedPages)) return false;
    const { index, record } = request.nextSample();
    request.lane.runningSamples += 1;
    if (reservedPages === undefined) request.ownReservationFree = false;
    const shared = request.pages.slice(0, request.sharedPages);
    for (const page of shared) this.#pool.hold(page);
    const pages = [...shared];
    const sample: RunningSample = {
      request,
      index,
      record,
      tokens: [...request.call.prompt, ...record.generated],
      computed: request.length,
      pages,
      node: request.node,
      reservedPages,
    };
    this.#running.push(sample);
    if (!this.#takePages(request, pages, request.length)) return false;
    if (request.length % PAGE_SIZE > 0) {
      copies.push({ from: request.pages[request.sharedPages]!, to: pages[request.sharedPages]! });
    }
    try {
      if (record.generated.length === 0) this.#extend(sample, request.firstToken(index));
    } catch (error) {
      if (!request.settled) request.fail(error);
      return false;
    }
    return true;
  }

  /** Puts a token behind a sample and finishes it when that was the last one. */
  #extend(sample: RunningSample, next: NextToken): void {
    const { request, record, index } = sample;
    if (request.settled) return;
    const position = record.generated.length;
    record.push(next);
    sample.tokens.push(next.token);
    request.tokensThisTurn += 1;
    const isLast = record.generated.length >= request.maxTokens;
    const isStopped = record.json?.isFinished || request.stop.reached(record.generated);
    const stopReason = isStopped ? "stop" : isLast ? "length" : undefined;
    request.onToken?.({ index, position, ...next, ...(stopReason && { stopReason }) });
    if (stopReason === undefined) return;
    this.#running = this.#running.filter((other) => other !== sample);
    this.#drop(sample);
    request.finishSample(index, record.finish(stopReason));
  }

  #drop(sample: RunningSample): void {
    const { request, pages, reservedPages } = sample;
    this.#pool.release(pages);
    request.lane.runningSamples -= 1;
    if (reservedPages === undefined) request.ownReservationFree = true;
    else this.#reservations.release(request.lane, reservedPages);
  }

  /** Lets go of everything that belongs to requests that are over. */
  #sweep(): void {
    this.#waiting = this.#waiting.filter((request) => {
      if (request.settled) this.#lanes.leave(request.lane);
      return !request.settled;
    });
    this.#running = this.#running.filter((sample) => {
      if (sample.request.settled) this.#drop(sample);
      return !sample.request.settled;
    });
    this.#active = this.#active.filter((request) => {
      if (!request.settled) return true;
      this.#leaveActive(request);
      this.#lanes.leave(request.lane);
      return false;
    });
  }

  #failAll(error: unknown): void {
    for (const request of this.#active) if (!request.settled) request.fail(error);
  }
}

function totalSize(grammars: Iterable<JsonGrammar>): number {
  let size = 0;
  for (const grammar of grammars) size += grammar.size;
  return size;
}

/** Compiles what a request needs; false where that fails it. */
function prepared(request: SampleProgress): boolean {
  try {
    request.prepare();
    return true;
  } catch (error) {
    request.fail(error);
    return false;
  }
}

/** Less where the logits of so many rows would not fit into one buffer: half of them for samples, half for prompts. */
function sizesFor(
  { sizes, maxBufferBytes = Number.POSITIVE_INFINITY }: Kernels,
  vocabSize: number,
): StepSizes {
  const rows = Math.max(1, Math.floor(maxBufferBytes / (8 * vocabSize)));
  return {
    ...sizes,
    samples: Math.min(sizes.samples, rows),
    promptLogits: Math.min(sizes.promptLogits, rows * vocabSize),
  };
}
