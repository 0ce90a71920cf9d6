import uPlot from "uplot";
import type { Points, RunCurves, Series } from "../api.js";

/** Unit of the horizontal axis. */
export type Axis = "step" | "time";

/** How curves are drawn. */
export interface CurveSettings {
  readonly axis: Axis;
  /** From 0, nothing, to below 1: how much a point keeps of those before it. */
  readonly smoothing: number;
  readonly isLog: boolean;
}

/** One metric of several runs. */
export interface Curve {
  readonly metric: string;
  /** In the order of the runs; undefined for a run that does not have it. */
  readonly series: readonly (Series | undefined)[];
}

const MIN_SMOOTHED = 20;
/** Beyond this, axes no longer add up. */
const MAX_DRAWN = 1e100;

/** The metrics of these runs, by what stands before the first slash. */
export function curveGroups(
  runs: readonly (RunCurves | undefined)[],
  filter: string,
): ReadonlyMap<string, Curve[]> {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const names = [...new Set(runs.flatMap((run) => Object.keys(run?.series ?? {})))]
    .filter((name) => words.every((word) => name.toLowerCase().includes(word)))
    .sort((one, other) => rank(one) - rank(other) || one.localeCompare(other, "en", { numeric: true }));
  const groups = new Map<string, Curve[]>();
  for (const metric of names) {
    const prefix = metric.includes("/") ? metric.slice(0, metric.indexOf("/")) : "";
    const series = runs.map((run) =>
      run && Object.hasOwn(run.series, metric) ? run.series[metric] : undefined,
    );
    groups.set(prefix, [...(groups.get(prefix) ?? []), { metric, series }]);
  }
  const place = (prefix: string) => {
    const known = ["env", "test", "", "train", "optim"].indexOf(prefix);
    return prefix === "time" ? 2 : known === -1 ? 1 : known / 10;
  };
  return new Map([...groups].sort(([one], [other]) => place(one) - place(other)));
}

/** Rewards and losses come first, counters last. */
function rank(metric: string): number {
  if (/^(?:epoch|progress|num_|learning_rate)|step$|done_frac/.test(metric)) return 2;
  return /reward|loss|nll|accuracy|correct|score/.test(metric) ? 0 : 1;
}

/** Where points stand on the axis. */
export function positions(points: Points, axis: Axis): readonly number[] {
  return axis === "time" ? points.times : points.steps;
}

/** The part of a value that can be drawn. */
function drawn(value: number | null, isLog: boolean): number | null {
  return value === null || Math.abs(value) > MAX_DRAWN || (isLog && value <= 0) ? null : value;
}

/** How many of a metric's values the picture leaves out. */
export function notDrawn({ values, stats }: Series, isLog: boolean): number {
  const hidden = values.filter((value) => value !== null && drawn(value, isLog) === null).length;
  return hidden + stats.notFinite;
}

/** An exponential mean, without the pull towards zero at its beginning. */
export function smoothed(values: readonly (number | null)[], weight: number): (number | null)[] {
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

/** The lines of a panel: for each run that has the metric the raw one and the smooth one. */
export function linesOf(curve: Curve, { axis, smoothing, isLog }: CurveSettings): uPlot.AlignedData {
  const tables: uPlot.AlignedData[] = [];
  for (const series of curve.series) {
    if (series === undefined) continue;
    const source = series.means ?? series;
    const raw = series.values.map((value) => drawn(value, isLog));
    tables.push([ascending(positions(series, axis)), raw]);
    const values = source.values.map((value) => drawn(value, isLog));
    // Few points have no noise to be taken off.
    tables.push([
      ascending(positions(source, axis)),
      smoothed(values, values.length < MIN_SMOOTHED ? 0 : smoothing),
    ]);
  }
  return tables.length === 0 ? [[]] : uPlot.join(tables);
}

/** A clock that was set back must not bring the points out of order. */
function ascending(values: readonly number[]): number[] {
  let last = Number.NEGATIVE_INFINITY;
  return values.map((value) => {
    last = Math.max(last, value);
    return last;
  });
}

/** From the first point of all runs to the last. */
export function domainOf(curves: Iterable<Curve>, axis: Axis): readonly [number, number] | undefined {
  let [least, greatest] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const { series } of curves) {
    for (const one of series) {
      const places = one === undefined ? [] : positions(one, axis);
      if (places.length === 0) continue;
      least = Math.min(least, places[0]!);
      greatest = Math.max(greatest, places.at(-1)!);
    }
  }
  return least <= greatest ? [least, greatest] : undefined;
}

/** Where a step stands on the axis. */
export function placeOfStep(series: Series, step: number, axis: Axis): number | undefined {
  if (axis === "step") return step;
  const at = series.steps.findIndex((one) => one >= step);
  return series.times[at === -1 ? series.steps.length - 1 : at];
}

/** The value at a place of the axis: that of the last point before it. */
export function valueAt(series: Series, axis: Axis, place: number): number | null | undefined {
  const places = positions(series, axis);
  let [low, high] = [0, places.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle]! <= place) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? undefined : series.values[low - 1];
}
