import { parseJsonObject } from "../../training/json-lines.node.js";
import type { Points, Series, SeriesStats } from "../api.js";
import { shownText } from "./shown-message.js";

const MAX_METRICS = 1000;
const MAX_TEXT_LENGTH = 200;
const CSV_PIECE_LENGTH = 1 << 16;
/** Names of the step and the time of a line, which are not metrics. */
const STEP = "step";
const TIME = "time";
/** Seconds of a step: where lines have no time, these add up to one. */
const STEP_SECONDS = "time/total";

/** Numbers, in memory that grows. */
class Numbers {
  #items = new Float64Array(64);
  length = 0;

  push(value: number): void {
    if (this.length === this.#items.length) {
      const grown = new Float64Array(this.length * 2);
      grown.set(this.#items);
      this.#items = grown;
    }
    this.#items[this.length] = value;
    this.length += 1;
  }

  at(index: number): number {
    return this.#items[index]!;
  }

  /** The numbers themselves, for loops over many; until the next one comes. */
  get items(): Float64Array {
    return this.#items;
  }
}

/** The values of one metric with the lines they stand in. */
class Column {
  readonly rows = new Numbers();
  readonly values = new Numbers();
  notFinite = 0;
  firstNotFiniteStep: number | undefined;
  min = Number.POSITIVE_INFINITY;
  max = Number.NEGATIVE_INFINITY;

  push(row: number, value: number, step: number): void {
    this.rows.push(row);
    this.values.push(value);
    if (!Number.isFinite(value)) {
      this.notFinite += 1;
      this.firstNotFiniteStep ??= step;
    } else {
      if (value < this.min) this.min = value;
      if (value > this.max) this.max = value;
    }
  }
}

/** The requested part of the curves, and the maximum number of points. */
export interface Window {
  readonly points: number;
  readonly fromStep?: number | undefined;
  readonly toStep?: number | undefined;
}

/** The lines of a `metrics.jsonl`, by metric. */
export class MetricsColumns {
  rows = 0;
  badLines = 0;
  leftOut = 0;
  readonly texts: Record<string, string> = {};
  readonly #columns = new Map<string, Column>();
  readonly #order: { readonly name: string; readonly column: Column }[] = [];
  readonly #steps = new Numbers();
  readonly #times = new Numbers();
  #firstTime: number | undefined;
  #seconds = 0;
  #wentBack = false;
  hasTimes = false;

  get lastStep(): number | undefined {
    return this.rows === 0 ? undefined : this.#steps.at(this.rows - 1);
  }

  /** Whole lines, as a file has them. */
  add(text: string): void {
    for (let start = 0; start < text.length; ) {
      const newline = text.indexOf("\n", start);
      const end = newline < 0 ? text.length : newline;
      const line = text.slice(start, end);
      start = end + 1;
      if (line.trim() !== "") this.#addLine(line);
    }
  }

  #addLine(text: string): void {
    const line = parseJsonObject(text);
    if (line === undefined) {
      this.badLines += 1;
      return;
    }
    const row = this.rows;
    const ownStep = line[STEP];
    const step =
      typeof ownStep === "number" && Number.isFinite(ownStep) ? ownStep : (this.lastStep ?? -1) + 1;
    if (step < (this.lastStep ?? step)) this.#wentBack = true;
    this.#steps.push(step);
    this.#times.push(this.#timeOf(line));
    this.rows += 1;
    let place = 0;
    for (const name in line) {
      place += 1;
      if (name === STEP || name === TIME) continue;
      const value = line[name];
      if (typeof value === "number") this.#columnAt(place, name)?.push(row, value, step);
      else if (typeof value === "boolean") this.#column(name)?.push(row, Number(value), step);
      // How a number that JSON does not have is written, by us and by the reader of Python's lines.
      else if (value === null) this.#column(name)?.push(row, Number.NaN, step);
      else this.#addText(name, value);
    }
  }

  #timeOf(line: Readonly<Record<string, unknown>>): number {
    const time = line[TIME];
    if (typeof time === "number" && Number.isFinite(time)) {
      this.#firstTime ??= time;
      this.hasTimes = true;
      return time - this.#firstTime;
    }
    const seconds = line[STEP_SECONDS];
    if (typeof seconds === "number" && seconds >= 0 && seconds < Number.POSITIVE_INFINITY) {
      this.#seconds += seconds;
      this.hasTimes = true;
    }
    // A line between two of a run that has times stands at the time of the one before.
    return this.#firstTime === undefined
      ? this.#seconds
      : this.rows === 0
        ? 0
        : this.#times.at(this.rows - 1);
  }

  /** Lines of one program name the same metrics in the same order. */
  #columnAt(place: number, name: string): Column | undefined {
    const expected = this.#order[place];
    if (expected?.name === name) return expected.column;
    const column = this.#column(name);
    if (column !== undefined && place < MAX_METRICS) this.#order[place] = { name, column };
    return column;
  }

  #column(name: string): Column | undefined {
    const known = this.#columns.get(name);
    if (known !== undefined) return known;
    if (this.#columns.size >= MAX_METRICS) {
      this.leftOut += 1;
      return undefined;
    }
    const column = new Column();
    this.#columns.set(name, column);
    return column;
  }

  #addText(name: string, value: unknown): void {
    if (!Object.hasOwn(this.texts, name) && Object.keys(this.texts).length >= MAX_METRICS) return;
    Object.defineProperty(this.texts, name, {
      value: shownText(value).slice(0, MAX_TEXT_LENGTH),
      enumerable: true,
      configurable: true,
      writable: true,
    });
  }

  /** Every metric, in at most the requested number of points. */
  series(window: Window): Readonly<Record<string, Series>> {
    return this.#byName((column) => {
      const places = this.#placesIn(column, window);
      const { means, ...points } = thin(column, places, window.points, this.#pointsAt);
      const stats = this.#statsOf(column);
      // A run that went back to an earlier step has none: smoothing goes by what is drawn then.
      return this.#wentBack ? { ...points, stats } : { ...points, stats, means };
    });
  }

  /** The values of the lines from this one on. */
  growth(fromRow: number): Readonly<Record<string, Points & { readonly stats: SeriesStats }>> {
    return this.#byName((column) => {
      let first = column.rows.length;
      while (first > 0 && column.rows.at(first - 1) >= fromRow) first -= 1;
      if (first === column.rows.length) return undefined;
      const places = Array.from({ length: column.rows.length - first }, (_, index) => first + index);
      return { ...this.#pointsAt(column, places), stats: this.#statsOf(column) };
    });
  }

  /** All lines as a table, in pieces; a value that a line does not have is left empty. */
  *csv(): Generator<string, void, undefined> {
    const columns = [...this.#columns.values()];
    const names = [STEP, ...(this.hasTimes ? [TIME] : []), ...this.#columns.keys()];
    let text = `${names.map(csvField).join(",")}\r\n`;
    const next = columns.map(() => 0);
    for (let row = 0; row < this.rows; row += 1) {
      const fields = columns.map(({ rows, values }, index) => {
        const place = next[index]!;
        if (place >= rows.length || rows.at(place) !== row) return "";
        next[index] = place + 1;
        return String(values.at(place));
      });
      text += `${[this.#steps.at(row), ...(this.hasTimes ? [this.#times.at(row)] : []), ...fields].join(",")}\r\n`;
      if (text.length < CSV_PIECE_LENGTH) continue;
      yield text;
      text = "";
    }
    yield text;
  }

  #byName<T>(read: (column: Column) => T | undefined): Record<string, T> {
    const entries = [...this.#columns].map(([name, column]) => [name, read(column)] as const);
    return Object.fromEntries(entries.filter((entry): entry is [string, T] => entry[1] !== undefined));
  }

  #statsOf(column: Column): SeriesStats {
    const last = column.rows.length - 1;
    const { min, max, notFinite, firstNotFiniteStep } = column;
    return {
      count: column.rows.length,
      last: finite(column.values.at(last)),
      lastStep: this.#steps.at(column.rows.at(last)),
      min: finite(min),
      max: finite(max),
      notFinite,
      firstNotFiniteStep,
    };
  }

  #placesIn(column: Column, { fromStep, toStep }: Window): readonly number[] | undefined {
    if (fromStep === undefined && toStep === undefined) return undefined;
    const places: number[] = [];
    for (let place = 0; place < column.rows.length; place += 1) {
      const step = this.#steps.at(column.rows.at(place));
      if (step >= (fromStep ?? step) && step <= (toStep ?? step)) places.push(place);
    }
    return places;
  }

  /** In the order of their steps; of several at one step the last, which is what a run that went on from there wrote. */
  readonly #pointsAt = (column: Column, places: readonly number[]): Points => {
    const points = places.map((place) => {
      const row = column.rows.at(place);
      return { step: this.#steps.at(row), time: this.#times.at(row), value: column.values.at(place) };
    });
    const isSorted = points.every(({ step }, index) => index === 0 || step > points[index - 1]!.step);
    const sorted = isSorted ? points : lastOfEach(points);
    return {
      steps: sorted.map(({ step }) => step),
      times: this.hasTimes ? sorted.map(({ time }) => Math.round(time * 1000) / 1000) : [],
      values: sorted.map(({ value }) => finite(value)),
    };
  };
}

function lastOfEach<T extends { readonly step: number }>(points: readonly T[]): readonly T[] {
  const sorted = points.toSorted((one, other) => one.step - other.step);
  return sorted.filter(({ step }, index) => step !== sorted[index + 1]?.step);
}

/** Spreadsheets compute what begins like a formula; a name of a log must not. */
function csvField(name: string): string {
  const safe = /^[=+\-@\t\r]/.test(name) ? `'${name}` : name;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

/** The least and the greatest of neighbours, which keeps every peak, and their means, which smoothing goes by. */
function thin(
  column: Column,
  places: readonly number[] | undefined,
  points: number,
  pointsAt: (column: Column, places: readonly number[]) => Points,
): Omit<Series, "stats"> {
  const length = places?.length ?? column.rows.length;
  const placeOf = (index: number) => places?.[index] ?? index;
  if (length <= points)
    return pointsAt(
      column,
      Array.from({ length }, (_, index) => placeOf(index)),
    );
  const values = column.values.items;
  const buckets = Math.max(1, Math.floor(points / 2));
  const kept: number[] = [];
  const lasts: number[] = [];
  const means: (number | null)[] = [];
  const counts: number[] = [];
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    const begin = Math.floor((bucket * length) / buckets);
    const end = Math.floor(((bucket + 1) * length) / buckets);
    let least = placeOf(begin);
    let greatest = least;
    let sum = 0;
    let count = 0;
    for (let index = begin; index < end; index += 1) {
      const place = places === undefined ? index : places[index]!;
      const value = values[place]!;
      if (!Number.isFinite(value)) continue;
      if (count === 0 || value < values[least]!) least = place;
      if (count === 0 || value > values[greatest]!) greatest = place;
      sum += value;
      count += 1;
    }
    kept.push(Math.min(least, greatest));
    if (least !== greatest) kept.push(Math.max(least, greatest));
    lasts.push(placeOf(end - 1));
    means.push(finite(sum / count));
    counts.push(count);
  }
  const ends = pointsAt(column, lasts);
  if (ends.steps.length < lasts.length) return pointsAt(column, kept);
  return { ...pointsAt(column, kept), means: { ...ends, values: means, counts } };
}
