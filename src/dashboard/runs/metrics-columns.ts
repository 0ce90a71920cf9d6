import { parseJsonObject } from "../../training/json-lines.node.js";
import type { Points, Series, SeriesStats } from "../api.js";
import { LineShape } from "./line-shape.js";
import { MetricColumn, Numbers } from "./metric-column.js";
import { shownText } from "./shown-message.js";
import { finite, thin } from "./thin.js";

const NEWLINE = 0x0a;
const MAX_METRICS = 1000;
/** Shapes of lines that are kept: with and without an evaluation, for example. */
const MAX_SHAPES = 4;
const MAX_TEXT_LENGTH = 200;
const CSV_PIECE_LENGTH = 1 << 16;
/** Names of the step and the time of a line, which are not metrics. */
const STEP = "step";
const TIME = "time";
/** Seconds of a step: where lines have no time, these add up to one. */
const STEP_SECONDS = "time/total";

/** The requested part of the curves, and the maximum number of points. */
export interface Window {
  readonly points: number;
  readonly fromStep?: number | undefined;
  readonly toStep?: number | undefined;
}

/** A shape of lines, and where its numbers belong. */
interface ShapedColumns {
  readonly shape: LineShape;
  /** Undefined for the step, the time, and metrics beyond the bound. */
  readonly columns: readonly (MetricColumn | undefined)[];
  /** Places of these names, or -1. */
  readonly step: number;
  readonly time: number;
  readonly seconds: number;
}

/** The lines of a `metrics.jsonl`, by metric. */
export class MetricsColumns {
  rows = 0;
  badLines = 0;
  leftOut = 0;
  readonly texts: Record<string, string> = {};
  readonly #columns = new Map<string, MetricColumn>();
  /** The one that fitted last comes first. */
  readonly #shapes: ShapedColumns[] = [];
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
  add(content: Buffer): void {
    for (let start = 0; start < content.length; ) {
      const next = this.#addShaped(content, start);
      if (next !== -1) {
        start = next;
        continue;
      }
      const newline = content.indexOf(NEWLINE, start);
      const end = newline < 0 ? content.length : newline + 1;
      const text = content.toString("utf8", start, end);
      if (text.trim() !== "") this.#addLine(text);
      start = end;
    }
  }

  /** Adds a line of a known shape. Returns where the next one begins, or -1 if the line has another shape. */
  #addShaped(content: Buffer, start: number): number {
    for (let tried = 0; tried < this.#shapes.length; tried += 1) {
      const shaped = this.#shapes[tried]!;
      const { shape, columns } = shaped;
      const end = shape.read(content, start);
      if (end === -1) continue;
      if (tried > 0) {
        this.#shapes.splice(tried, 1);
        this.#shapes.unshift(shaped);
      }
      const { values } = shape;
      const numberAt = (place: number) => (place === -1 ? undefined : values[place]);
      const row = this.rows;
      const step = this.#addRow(numberAt(shaped.step), numberAt(shaped.time), numberAt(shaped.seconds));
      for (let index = 0; index < columns.length; index += 1) columns[index]?.push(row, values[index]!, step);
      return end;
    }
    return -1;
  }

  #addLine(text: string): void {
    const line = parseJsonObject(text);
    if (line === undefined) {
      this.badLines += 1;
      return;
    }
    const row = this.rows;
    const step = this.#addRow(line[STEP], line[TIME], line[STEP_SECONDS]);
    for (const name in line) {
      if (name === STEP || name === TIME) continue;
      const value = line[name];
      if (typeof value === "number") this.#column(name)?.push(row, value, step);
      else if (typeof value === "boolean") this.#column(name)?.push(row, Number(value), step);
      // How a number that JSON does not have is written, by us and by the reader of Python's lines.
      else if (value === null) this.#column(name)?.push(row, Number.NaN, step);
      else this.#addText(name, value);
    }
    const shape = this.#shapes.length < MAX_SHAPES ? LineShape.of(text, line) : undefined;
    if (shape === undefined) return;
    const { names } = shape;
    this.#shapes.unshift({
      shape,
      columns: names.map((name) => (name === STEP || name === TIME ? undefined : this.#columns.get(name))),
      step: names.indexOf(STEP),
      time: names.indexOf(TIME),
      seconds: names.indexOf(STEP_SECONDS),
    });
  }

  /** Begins a line; returns its step. */
  #addRow(ownStep: unknown, time: unknown, seconds: unknown): number {
    const last = this.lastStep;
    const step = typeof ownStep === "number" && Number.isFinite(ownStep) ? ownStep : (last ?? -1) + 1;
    if (last !== undefined && step < last) this.#wentBack = true;
    this.#steps.push(step);
    this.#times.push(this.#timeOf(time, seconds));
    this.rows += 1;
    return step;
  }

  #timeOf(time: unknown, seconds: unknown): number {
    if (typeof time === "number" && Number.isFinite(time)) {
      this.#firstTime ??= time;
      this.hasTimes = true;
      return time - this.#firstTime;
    }
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

  #column(name: string): MetricColumn | undefined {
    const known = this.#columns.get(name);
    if (known !== undefined) return known;
    if (this.#columns.size >= MAX_METRICS) {
      this.leftOut += 1;
      return undefined;
    }
    const column = new MetricColumn();
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
      let first = column.length;
      while (first > 0 && column.rowAt(first - 1) >= fromRow) first -= 1;
      if (first === column.length) return undefined;
      const places = Array.from({ length: column.length - first }, (_, index) => first + index);
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
      const fields = columns.map((column, index) => {
        const place = next[index]!;
        if (place >= column.length || column.rowAt(place) !== row) return "";
        next[index] = place + 1;
        return String(column.values.at(place));
      });
      text += `${[this.#steps.at(row), ...(this.hasTimes ? [this.#times.at(row)] : []), ...fields].join(",")}\r\n`;
      if (text.length < CSV_PIECE_LENGTH) continue;
      yield text;
      text = "";
    }
    yield text;
  }

  #byName<T>(read: (column: MetricColumn) => T | undefined): Record<string, T> {
    const entries = [...this.#columns].map(([name, column]) => [name, read(column)] as const);
    return Object.fromEntries(entries.filter((entry): entry is [string, T] => entry[1] !== undefined));
  }

  #statsOf(column: MetricColumn): SeriesStats {
    const last = column.length - 1;
    const { min, max, notFinite, firstNotFiniteStep } = column;
    return {
      count: column.length,
      last: finite(column.values.at(last)),
      lastStep: this.#steps.at(column.rowAt(last)),
      min: finite(min),
      max: finite(max),
      notFinite,
      firstNotFiniteStep,
    };
  }

  #placesIn(column: MetricColumn, { fromStep, toStep }: Window): readonly number[] | undefined {
    if (fromStep === undefined && toStep === undefined) return undefined;
    const places: number[] = [];
    for (let place = 0; place < column.length; place += 1) {
      const step = this.#steps.at(column.rowAt(place));
      if (step >= (fromStep ?? step) && step <= (toStep ?? step)) places.push(place);
    }
    return places;
  }

  /** In the order of their steps; of several at one step the last, which is what a run that went on from there wrote. */
  readonly #pointsAt = (column: MetricColumn, places: readonly number[]): Points => {
    const points = places.map((place) => {
      const row = column.rowAt(place);
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
