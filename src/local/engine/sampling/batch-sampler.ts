import { CancelledError, EngineInputError, type SampleCall, type SampleResult } from "../engine.js";
import type { Kernels } from "../kernels/kernels.js";
import type { BaseModel } from "../model/base-model.js";
import type { Adapter } from "../training/adapter.js";
import { inTurns, type Lane, Lanes } from "./lanes.js";
import { PAGE_SIZE, PagePool, type PrefixNode } from "./page-pool.js";
import { logitRowsOf, pagedForward, type SequenceRows } from "./paged-forward.js";
import { SampleProgress, SequenceRecord } from "./sample-progress.js";
import type { Decode } from "./stop-condition.js";

/** What a sampler needs beside its model. */
export interface BatchSamplerOptions {
  cacheBytes: number;
  /** Absent where the model has no tokenizer. */
  decode: Decode | undefined;
  freshSeed: () => number;
}

/** Samples that a step advances; those that newcomers have started beyond it pause in turn. */
const MAX_RUNNING_SAMPLES = 128;
/** This part of the pages is kept for lanes that hold no more than it, so that a newcomer need not wait for an end. */
const NEWCOMERS_PAGES = 1 / 8;
/** A request that found no room so often is waited for by all others. */
const MAX_PASSED_OVER = 512;
/** Prompt rows in one step, so that a long prompt does not hold up the others for long. */
const MAX_PROMPT_ROWS = 256;
/** Prompt rows whose logits are wanted hold at most this many values at a time. */
const MAX_LOGIT_VALUES = 1 << 21;

interface RunningSample {
  request: SampleProgress;
  index: number;
  record: SequenceRecord;
  tokens: number[];
  pages: number[];
  node: PrefixNode;
  /** Its own reservation; absent when it uses the one its request came in with. */
  reservedPages: number | undefined;
}

/** Rows of the next forward pass, and who waits for them. */
interface PlannedRows {
  request: SampleProgress;
  rows: SequenceRows;
  version: number;
  consume(logits: (row: number) => Float32Array, logSumExp: (row: number) => number): void;
}

/** Samples for many requests at once: every step advances each running sample by one token and prompts by a chunk. */
export class BatchSampler {
  readonly #kernels: Kernels;
  readonly #model: BaseModel;
  readonly #options: BatchSamplerOptions;
  readonly #pool: PagePool;
  readonly #lanes = new Lanes();
  #turn = 0;
  #waiting: SampleProgress[] = [];
  /** Admitted, in order: prompts being computed, then samples being started. */
  #active: SampleProgress[] = [];
  #running: RunningSample[] = [];
  #reservedPages = 0;

  constructor(kernels: Kernels, model: BaseModel, options: BatchSamplerOptions) {
    this.#kernels = kernels;
    this.#model = model;
    this.#options = options;
    this.#pool = new PagePool(kernels, model.config, options.cacheBytes);
  }

  /** Positions of the longest sequence, prompt and sample without its last token, that the key-value cache holds. */
  get maxSequenceTokens(): number {
    return (this.#pool.maxPages - 1) * PAGE_SIZE;
  }

  get hasWork(): boolean {
    return this.#waiting.length + this.#active.length + this.#running.length > 0;
  }

  submit(call: SampleCall, adapter: Adapter | undefined): Promise<SampleResult> {
    const { decode, freshSeed } = this.#options;
    const lane = this.#lanes.enter(call.session ?? "", adapter?.version ?? 0);
    let request: SampleProgress;
    try {
      request = new SampleProgress(call, lane, adapter, this.#model.config, decode, freshSeed);
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
    const planned = [...this.#planSamples(), ...this.#planPrompts()]
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
      const out = pagedForward(
        kernels,
        this.#model,
        this.#pool,
        planned.map((plan) => plan.rows),
      );
      if (out.rows === 0) {
        for (const plan of planned) plan.consume(noRow, noRow);
        return;
      }
      const logits = await kernels.download(out.logits);
      const logSumExp = await kernels.download(out.logSumExp);
      const { vocabSize } = this.#model.config;
      let row = 0;
      for (const plan of planned) {
        const first = row;
        row += logitRowsOf(plan.rows);
        if (!logSumExp.subarray(first, row).every(Number.isFinite)) {
          const what =
            "the model's logits are not finite: the adapter has diverged, or the weights are damaged";
          if (!plan.request.settled) plan.request.fail(new EngineInputError(what));
          continue;
        }
        plan.consume(
          (index) => logits.subarray((first + index) * vocabSize, (first + index + 1) * vocabSize),
          (index) => logSumExp[first + index]!,
        );
      }
    } finally {
      kernels.release(mark);
    }
  }

  /** The samples that this step advances: all, or as many of each lane as of any other. */
  #chosen(): RunningSample[] {
    if (this.#running.length <= MAX_RUNNING_SAMPLES) return this.#running;
    return inTurns(this.#running, ({ request }) => request.lane, this.#turn).slice(0, MAX_RUNNING_SAMPLES);
  }

  #planSamples(): PlannedRows[] {
    const planned: PlannedRows[] = [];
    for (const sample of this.#chosen()) {
      const position = sample.tokens.length - 1;
      const { request } = sample;
      if (!this.#takePages(request, sample.pages, position + 1)) continue;
      const { adapter } = request;
      planned.push({
        request,
        version: adapter?.version ?? 0,
        rows: {
          lora: adapter?.weights,
          pages: sample.pages,
          tokens: sample.tokens,
          start: position,
          count: 1,
          logitsFrom: 0,
        },
        consume: (logits, logSumExp) => {
          sample.node = this.#registerFull(sample.node, sample.tokens, position, position + 1, sample.pages);
          this.#extend(sample, logits(0), logSumExp(0));
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
    let budget = MAX_PROMPT_ROWS;
    const unread = this.#active.filter(({ settled, computed, length }) => !settled && computed < length);
    for (const request of inTurns(unread, ({ lane }) => lane, this.#turn)) {
      if (request.settled) continue;
      const start = request.computed;
      let count = Math.min(budget, request.length - start);
      if (request.logitsFrom < request.length - 1) {
        count = Math.min(count, Math.max(1, Math.floor(MAX_LOGIT_VALUES / this.#model.config.vocabSize)));
      }
      if (count === 0) break;
      budget -= count;
      if (!this.#takePages(request, request.pages, start + count)) continue;
      const { adapter, logitsFrom } = request;
      const tokens = request.call.prompt;
      planned.push({
        request,
        version: adapter?.version ?? 0,
        rows: { lora: adapter?.weights, pages: request.pages, tokens, start, count, logitsFrom },
        consume: (logits, logSumExp) => {
          request.computed = start + count;
          request.node = this.#registerFull(request.node, tokens, start, start + count, request.pages);
          const first = Math.max(start, logitsFrom);
          for (let position = first; position < start + count; position++) {
            request.scorePrompt(position, logits(position - first), logSumExp(position - first));
          }
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

  /** Lets waiting requests in, the oldest of each lane in turn. */
  #admit(): void {
    const full = new Set<Lane>();
    const admitted = new Set<SampleProgress>();
    const overdue = this.#waiting.find((request) => request.passedOver > MAX_PASSED_OVER);
    for (const request of overdue ? [overdue] : inTurns(this.#waiting, ({ lane }) => lane, this.#turn)) {
      if (full.size === this.#lanes.size) break;
      const { lane } = request;
      if (full.has(lane)) continue;
      const taken = this.#active.length + this.#running.length;
      if (!this.#hasPlace(lane, taken, lane.activeRequests + lane.runningSamples)) full.add(lane);
      else if (!this.#reserve(lane, request.pagesAtLeast)) {
        full.add(lane);
        request.passedOver += 1;
      } else {
        admitted.add(request);
        this.#begin(request);
      }
    }
    if (admitted.size > 0) this.#waiting = this.#waiting.filter((request) => !admitted.has(request));
  }

  #begin(request: SampleProgress): void {
    const root = this.#pool.root(request.adapter?.version ?? 0);
    const limit = Math.min(request.length - 1, request.logitsFrom);
    const prefix = this.#pool.find(root, request.call.prompt, limit);
    request.pages = prefix.pages;
    request.node = prefix.node;
    request.computed = prefix.pages.length * PAGE_SIZE;
    request.cacheHitTokens = request.computed;
    request.lane.activeRequests += 1;
    this.#active.push(request);
  }

  /** A lane that has less than its share never waits for the others' samples to end. */
  #hasPlace(lane: Lane, taken: number, takenByLane: number): boolean {
    return taken < MAX_RUNNING_SAMPLES || takenByLane < this.#lanes.shareOf(lane, MAX_RUNNING_SAMPLES);
  }

  #reserve(lane: Lane, pages: number): boolean {
    const { maxPages } = this.#pool;
    const kept = Math.floor(maxPages * NEWCOMERS_PAGES);
    const mayTakeAll = lane.reservedPages + pages <= kept || pages > maxPages - kept;
    if (this.#reservedPages + pages > (mayTakeAll ? maxPages : maxPages - kept)) return false;
    this.#release(lane, -pages);
    return true;
  }

  #release(lane: Lane, pages: number): void {
    this.#reservedPages -= pages;
    lane.reservedPages -= pages;
  }

  #startSamples(): void {
    const ready = this.#active.filter(
      ({ last, settled, startedSamples, call }) => last && !settled && startedSamples < call.numSamples,
    );
    for (const request of inTurns(ready, ({ lane }) => lane, this.#turn)) {
      while (request.last && !request.settled && request.startedSamples < request.call.numSamples) {
        if (!this.#hasPlace(request.lane, this.#running.length, request.lane.runningSamples)) break;
        if (!this.#startSample(request, request.last)) break;
      }
    }
  }

  #startSample(request: SampleProgress, last: { logits: Float32Array; logSumExp: number }): boolean {
    const index = request.startedSamples;
    const record = new SequenceRecord(request.call.topkSampleLogprobs);
    if (request.maxTokens === 0) {
      request.startedSamples += 1;
      request.finishSample(index, record.finish("length"));
      return true;
    }
    const reservedPages = request.ownReservationFree ? undefined : request.pagesPerSample;
    if (reservedPages !== undefined && !this.#reserve(request.lane, reservedPages)) return false;
    request.startedSamples += 1;
    request.lane.runningSamples += 1;
    if (reservedPages === undefined) request.ownReservationFree = false;
    const shared = request.pages.slice(0, request.sharedPages);
    for (const page of shared) this.#pool.hold(page);
    const pages = [...shared];
    const sample: RunningSample = {
      request,
      index,
      record,
      tokens: Array.from(request.call.prompt),
      pages,
      node: request.node,
      reservedPages,
    };
    this.#running.push(sample);
    if (!this.#takePages(request, pages, request.length)) return false;
    if (request.length % PAGE_SIZE > 0) {
      this.#pool.copyPage(request.pages[request.sharedPages]!, pages[request.sharedPages]!);
    }
    this.#extend(sample, last.logits, last.logSumExp);
    return true;
  }

  /** Takes the next token of a sample and finishes it when that was the last one. */
  #extend(sample: RunningSample, logits: Float32Array, logSumExp: number): void {
    const { request, record } = sample;
    if (request.settled) return;
    const token = request.choose(logits, sample.index, record.generated.length);
    record.push(token, logits, logSumExp);
    sample.tokens.push(token);
    const stopped = request.stop.reached(record.generated);
    if (!stopped && record.generated.length < request.maxTokens) return;
    this.#running = this.#running.filter((other) => other !== sample);
    this.#drop(sample);
    request.finishSample(sample.index, record.finish(stopped ? "stop" : "length"));
  }

  #drop(sample: RunningSample): void {
    const { request, pages, reservedPages } = sample;
    this.#pool.release(pages);
    request.lane.runningSamples -= 1;
    if (reservedPages === undefined) request.ownReservationFree = true;
    else this.#release(request.lane, reservedPages);
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
      this.#pool.release(request.pages);
      this.#release(request.lane, request.pagesAtLeast);
      request.lane.activeRequests -= 1;
      this.#lanes.leave(request.lane);
      return false;
    });
  }

  #failAll(error: unknown): void {
    for (const request of this.#active) if (!request.settled) request.fail(error);
  }
}

function noRow(): never {
  throw new Error("no logits were asked for");
}
