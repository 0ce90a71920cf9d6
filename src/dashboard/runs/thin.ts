import type { Points, Series } from "../api.js";
import type { MetricColumn } from "./metric-column.js";

/** The least and the greatest of neighbours, which keeps every peak, and their means, which smoothing goes by. */
export function thin(
  column: MetricColumn,
  places: readonly number[] | undefined,
  points: number,
  pointsAt: (column: MetricColumn, places: readonly number[]) => Points,
): Omit<Series, "stats"> {
  const length = places?.length ?? column.length;
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

/** A number as JSON has it: null for those that it does not have. */
export function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}
