import { stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { parseJsonObject } from "../../training/json-lines.node.js";
import type { BestEvaluation } from "../api.js";
import { LineTail } from "./line-tail.js";
import { isEvaluation, isLowerBetter, judgedBy, mayBeHeadline } from "./metric-names.js";
import { fileOf, type ShownFolder } from "./run-folders.js";

const NEWLINE = 0x0a;
const MAX_POINTS = 96;
const MAX_METRICS = 16;
const MAX_RUNS = 2000;
/** Growth of a file up to this is read at once, more in the background. */
const AT_ONCE_BYTES = 1 << 20;
const PAUSE_MS = 1500;

/** How a sweep judges its runs. */
export interface SweepAim {
  readonly metric: string;
  readonly isLowerBetter: boolean;
}

/** Facts of a run that stand anywhere in its `metrics.jsonl`. */
export interface DigestFacts {
  readonly startedAt?: number | undefined;
  readonly seconds?: number | undefined;
  readonly best?: BestEvaluation | undefined;
  curve(metric: string | undefined): readonly number[];
}

type Line = Readonly<Record<string, unknown>>;
type Extreme = { readonly value: number; readonly step: number };

/**
 * Reads each line of a file once and keeps a few numbers of it. Only lines with an evaluation are parsed, and as many others
 * as a small curve needs: there may be hundreds of thousands.
 */
class Tally {
  readonly #aim: string | undefined;
  readonly #marks: readonly Buffer[];
  #lines = 0;
  #stride = 1;
  #first: Line | undefined;
  #last: Line | undefined;
  #curves = new Map<string, { line: number; value: number }[]>();
  readonly #least = new Map<string, Extreme>();
  readonly #greatest = new Map<string, Extreme>();

  constructor(aim: string | undefined) {
    this.#aim = aim;
    this.#marks = [
      '"test/',
      '"eval/',
      ...(aim === undefined || isEvaluation(aim) ? [] : [JSON.stringify(aim)]),
    ].map((mark) => Buffer.from(mark));
  }

  add(content: Buffer): void {
    const firstMark = (from: number) => {
      const found = this.#marks.map((mark) => content.indexOf(mark, from)).filter((place) => place !== -1);
      return Math.min(content.length, ...found);
    };
    let mark = firstMark(0);
    for (let start = 0; start < content.length; ) {
      const newline = content.indexOf(NEWLINE, start);
      const end = newline < 0 ? content.length : newline;
      if (mark < start) mark = firstMark(start);
      const isMeasured = mark < end;
      const isSampled = this.#lines % this.#stride === 0;
      const isLast = end >= content.length - 1;
      const isRead = isMeasured || isSampled || isLast;
      const line = isRead ? parseJsonObject(content.toString("utf8", start, end)) : undefined;
      if (line !== undefined) {
        this.#first ??= line;
        this.#last = line;
        if (isSampled) this.#sample(line);
        if (isMeasured) this.#measure(line);
      }
      this.#lines += 1;
      start = end + 1;
    }
  }

  #sample(line: Line): void {
    for (const name in line) {
      const value = line[name];
      if (typeof value !== "number" || !Number.isFinite(value) || !mayBeHeadline(name)) continue;
      const points = this.#curves.get(name);
      if (points !== undefined) points.push({ line: this.#lines, value });
      else if (this.#curves.size < MAX_METRICS) this.#curves.set(name, [{ line: this.#lines, value }]);
    }
    while ([...this.#curves.values()].some(({ length }) => length > MAX_POINTS)) {
      this.#stride *= 2;
      for (const [name, points] of this.#curves)
        this.#curves.set(
          name,
          points.filter(({ line: at }) => at % this.#stride === 0),
        );
    }
  }

  #measure(line: Line): void {
    const { step: at } = line;
    const step = typeof at === "number" ? at : this.#lines;
    for (const name in line) {
      const value = line[name];
      if (typeof value !== "number" || !Number.isFinite(value)) continue;
      if (!isEvaluation(name) && name !== this.#aim) continue;
      if (!this.#least.has(name) && this.#least.size >= MAX_METRICS && name !== this.#aim) continue;
      if (value < (this.#least.get(name)?.value ?? Number.POSITIVE_INFINITY))
        this.#least.set(name, { value, step });
      if (value > (this.#greatest.get(name)?.value ?? Number.NEGATIVE_INFINITY))
        this.#greatest.set(name, { value, step });
    }
  }

  facts(aim: SweepAim | undefined): DigestFacts {
    const metric =
      aim !== undefined && this.#least.has(aim.metric) ? aim.metric : judgedBy([...this.#least.keys()]);
    const isLower =
      metric !== undefined && (metric === aim?.metric ? aim.isLowerBetter : isLowerBetter(metric));
    const extreme = metric === undefined ? undefined : (isLower ? this.#least : this.#greatest).get(metric);
    const [began, ended] = [timeOf(this.#first), timeOf(this.#last)];
    const firstSeconds = Number(this.#first?.["time/total"] ?? 0) || 0;
    const startedAt = began === undefined ? undefined : (began - firstSeconds) * 1000;
    return {
      startedAt: startedAt !== undefined && Math.abs(startedAt) < 8.64e15 ? startedAt : undefined,
      seconds:
        began === undefined || ended === undefined ? undefined : Math.max(0, ended - began) + firstSeconds,
      best:
        metric === undefined || extreme === undefined
          ? undefined
          : { metric, ...extreme, isLowerBetter: isLower },
      curve: (name) =>
        (name === undefined ? undefined : this.#curves.get(name))?.map(({ value }) =>
          Number(value.toPrecision(4)),
        ) ?? [],
    };
  }
}

function timeOf(line: Line | undefined): number | undefined {
  const time = line?.["time"];
  return typeof time === "number" && Number.isFinite(time) ? time : undefined;
}

interface Followed {
  readonly tail: LineTail;
  tally: Tally;
  version: string;
  size: number;
  reading: Promise<void>;
}

/** The facts of runs, which follow their files. */
export class RunDigests {
  readonly #runs = new Map<string, Followed>();
  #background: Promise<void> = Promise.resolve();

  /** The facts that are known so far: a long file is read in the background. */
  async of(folder: ShownFolder, aim: SweepAim | undefined): Promise<DigestFacts> {
    const path = await fileOf(folder, "metrics.jsonl");
    const found = path === undefined ? undefined : await stat(path).catch(() => undefined);
    if (path === undefined || found === undefined) return new Tally(undefined).facts(undefined);
    const run = this.#follow(`${path} ${aim?.metric ?? ""}`, path, aim);
    const version = `${found.ino}:${found.size}:${found.mtimeMs}`;
    if (version !== run.version) {
      const isSmall = Math.abs(found.size - run.size) <= AT_ONCE_BYTES;
      run.version = version;
      run.size = found.size;
      const read = () => run.tail.read().catch(() => {});
      run.reading = run.reading.then(() => (isSmall ? read() : this.#afterOthers(read)));
      if (isSmall) await run.reading;
    }
    return run.tally.facts(aim);
  }

  #follow(key: string, path: string, aim: SweepAim | undefined): Followed {
    const known = this.#runs.get(key);
    if (known !== undefined) return known;
    const run: Followed = {
      tally: new Tally(aim?.metric),
      ...{ version: "", size: 0, reading: Promise.resolve() },
      tail: new LineTail(path, {
        lines: (content) => run.tally.add(content),
        reset: () => {
          run.tally = new Tally(aim?.metric);
        },
        skipped: () => {},
      }),
    };
    this.#runs.set(key, run);
    const [oldest] = this.#runs.keys();
    if (this.#runs.size > MAX_RUNS && oldest !== undefined) this.#runs.delete(oldest);
    return run;
  }

  /** A page that opens a run as soon as it is listed goes first. */
  #afterOthers(read: () => Promise<void>): Promise<void> {
    this.#background = this.#background.then(() => sleep(PAUSE_MS, undefined, { ref: false })).then(read);
    return this.#background;
  }
}
