import { AsyncLocalStorage } from "node:async_hooks";
import { appendFileSync, closeSync, mkdirSync, openSync, writeSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import {
  observeSpans,
  type SpanAttributes,
  type SpanCategory,
  type SpanOptions,
} from "../../session/index.js";

/** A span of a step, in the Python cookbook's `timing_spans.jsonl`. */
interface TimingSpan {
  readonly name: string;
  readonly duration: number;
  readonly wall_start: number;
  readonly wall_end: number;
}

/** Categories whose seconds are measured for each step. */
const MEASURED = [
  "sample",
  "train",
  "environment",
  "evaluate",
  "save",
] as const satisfies readonly SpanCategory[];
/** Spans that are written for a step: the longest ones, of a step with more. */
const MAX_STEP_SPANS = 1000;
/** Longest time between a span and its line in the file. */
const WRITE_EVERY = 200;

const current = new AsyncLocalStorage<RunTimeline>();
observeSpans(() => current.getStore()?.observe);

/** Where the time of a run goes: seconds by category for each step, `timing_spans.jsonl`, and a timeline for Perfetto. */
export class RunTimeline {
  readonly #startedMs = performance.now();
  readonly #timingFile: string | undefined;
  readonly #trace: TraceFile | undefined;
  readonly #busy = new Map(MEASURED.map((category) => [category, new BusyTime()]));
  /** Spans that have ended, with the step that they began in. */
  #spans: { readonly step: number; readonly span: TimingSpan }[] = [];
  #step = 0;

  constructor({
    folder,
    trace,
  }: { readonly folder: string | undefined; readonly trace: string | undefined }) {
    this.#timingFile = folder && join(folder, "timing_spans.jsonl");
    this.#trace = trace === undefined ? undefined : new TraceFile(trace);
  }

  /** Records the spans of everything that `work` begins. */
  during<T>(work: () => Promise<T>): Promise<T> {
    return current.run(this, work);
  }

  /** Sees a span: `observeSpans` calls it. */
  readonly observe = (name: string, { category, attributes = {} }: SpanOptions) => {
    const start = this.#nowSeconds();
    const step = this.#step;
    const busy = category && this.#busy.get(category as (typeof MEASURED)[number]);
    busy?.begin(start);
    return (more: SpanAttributes, error: unknown) => {
      const end = this.#nowSeconds();
      busy?.end(end);
      const args = { ...attributes, ...more, ...(error === undefined ? {} : { error: String(error) }) };
      this.#trace?.add({ name, category: category ?? "other", start, end, args });
      if (category !== undefined && category !== "step" && this.#timingFile !== undefined)
        this.#spans.push({ step, span: { name, duration: end - start, wall_start: start, wall_end: end } });
    };
  };

  /** Seconds since the last call in which something of each category was under way, as metrics. */
  takeSeconds(): Readonly<Record<string, number>> {
    const now = this.#nowSeconds();
    const seconds = MEASURED.map((category) => [`time/in_${category}`, this.#busy.get(category)!.take(now)]);
    return Object.fromEntries(seconds.filter(([, value]) => (value as number) > 0));
  }

  /** Spans that begin from now on belong to this step. */
  beginStep(step: number): void {
    this.#step = step;
  }

  /** Writes the spans of a step that have ended; later steps may have begun meanwhile. */
  endStep(step: number): void {
    const spans = this.#spans.filter((each) => each.step <= step).map(({ span }) => span);
    this.#spans = this.#spans.filter((each) => each.step > step);
    if (this.#timingFile === undefined || spans.length === 0) return;
    const kept =
      spans.length <= MAX_STEP_SPANS
        ? spans
        : spans.toSorted((one, other) => other.duration - one.duration).slice(0, MAX_STEP_SPANS);
    const first = Math.min(...kept.map((span) => span.wall_start));
    const relative = kept.map((span) => ({
      ...span,
      wall_start: span.wall_start - first,
      wall_end: span.wall_end - first,
    }));
    appendFileSync(this.#timingFile, `${JSON.stringify({ step, spans: relative })}\n`);
  }

  close(): void {
    this.#trace?.close();
  }

  #nowSeconds(): number {
    return (performance.now() - this.#startedMs) / 1000;
  }
}

/** Time in which at least one of several overlapping things was under way. */
class BusyTime {
  #running = 0;
  #since = 0;
  #seconds = 0;

  begin(now: number): void {
    if (this.#running === 0) this.#since = now;
    this.#running += 1;
  }

  end(now: number): void {
    this.#running -= 1;
    if (this.#running === 0) this.#seconds += now - this.#since;
  }

  take(now: number): number {
    const seconds = this.#seconds + (this.#running > 0 ? now - this.#since : 0);
    this.#seconds = 0;
    this.#since = now;
    return seconds;
  }
}

interface TracedSpan {
  readonly name: string;
  readonly category: string;
  /** Seconds since the run began. */
  readonly start: number;
  readonly end: number;
  readonly args: object;
}

/** A file in Chrome's trace format, an array of events, which Perfetto also reads if its end is missing. */
class TraceFile {
  readonly #file: number;
  #lines: string[] = [];
  #isFirst = true;
  /** By category, the ends of the last span of each lane. Spans of a lane do not overlap. */
  readonly #lanes = new Map<string, { readonly first: number; readonly ends: number[] }>();

  constructor(path: string) {
    mkdirSync(dirname(resolve(path)), { recursive: true });
    this.#file = openSync(path, "w");
    this.#write({ name: "process_name", ph: "M", pid: 1, tid: 0, args: { name: "tinkerts" } });
  }

  add({ name, category, start, end, args }: TracedSpan): void {
    const [ts, dur] = [start * 1e6, (end - start) * 1e6];
    this.#write({
      name,
      cat: category,
      ph: "X",
      ts,
      dur,
      pid: 1,
      tid: this.#lane(category, start, end),
      args,
    });
  }

  close(): void {
    this.#flush();
    writeSync(this.#file, "\n]\n");
    closeSync(this.#file);
  }

  #lane(category: string, start: number, end: number): number {
    let lanes = this.#lanes.get(category);
    if (lanes === undefined) {
      lanes = { first: this.#lanes.size * 10_000 + 1, ends: [] };
      this.#lanes.set(category, lanes);
    }
    const free = lanes.ends.findIndex((last) => last <= start);
    const lane = free === -1 ? lanes.ends.length : free;
    if (free === -1) {
      const thread = { name: `${category} ${lane + 1}` };
      this.#write({ name: "thread_name", ph: "M", pid: 1, tid: lanes.first + lane, args: thread });
    }
    lanes.ends[lane] = end;
    return lanes.first + lane;
  }

  #write(event: object): void {
    this.#lines.push(JSON.stringify(event));
    if (this.#lines.length >= WRITE_EVERY) this.#flush();
  }

  #flush(): void {
    if (this.#lines.length === 0) return;
    writeSync(this.#file, `${this.#isFirst ? "[\n" : ",\n"}${this.#lines.join(",\n")}`);
    this.#isFirst = false;
    this.#lines = [];
  }
}
