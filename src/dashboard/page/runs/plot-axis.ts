import type { RunSummary, SettingValue } from "../../api.js";
import type { RunField } from "./run-fields.js";

/** Numbers this far apart are shown on a logarithmic axis. */
const LOG_RATIO = 8;
const TICKS = 5;
/** Labels nearer to each other than this part of the axis would overlap. */
const MIN_DISTANCE = 0.06;

/** Where the values of a field stand on an axis, from 0 to 1. */
export interface PlotAxis {
  readonly field: RunField;
  place(run: RunSummary): number | undefined;
  readonly ticks: readonly { readonly at: number; readonly label: string }[];
}

/** The axis of a field: numbers by their size, anything else one beside the other. */
export function axisOf(field: RunField, runs: readonly RunSummary[]): PlotAxis {
  const values = [...new Set(runs.map((run) => field.value(run)))].filter(isPresent);
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length < values.length || numbers.length === 0) return namedAxis(field, values);
  const [least, greatest] = [Math.min(...numbers), Math.max(...numbers)];
  const isLog = least > 0 && greatest / least >= LOG_RATIO;
  const measure = (value: number) => (isLog ? Math.log(value) : value);
  const height = measure(greatest) - measure(least);
  const at = (value: number) => (height === 0 ? 0.5 : (measure(value) - measure(least)) / height);
  const marked =
    numbers.length <= TICKS
      ? apart(numbers, at)
      : Array.from({ length: TICKS }, (_, tick) => {
          const place = measure(least) + (height * tick) / (TICKS - 1);
          return isLog ? Math.exp(place) : place;
        });
  return {
    field,
    place: (run) => {
      const value = field.value(run);
      return typeof value === "number" ? at(value) : undefined;
    },
    ticks: marked.map((value) => ({
      at: at(value),
      label: field.text(isLog && !numbers.includes(value) ? Number(value.toPrecision(2)) : value),
    })),
  };
}

/** The least, the greatest, and of those between them what has space. */
function apart(numbers: readonly number[], at: (value: number) => number): readonly number[] {
  const sorted = numbers.toSorted((one, other) => one - other);
  const greatest = sorted.pop()!;
  const kept: number[] = [];
  for (const value of sorted) {
    const before = kept.at(-1);
    const hasSpace = before === undefined || at(value) - at(before) >= MIN_DISTANCE;
    if (hasSpace && (before === undefined || at(greatest) - at(value) >= MIN_DISTANCE)) kept.push(value);
  }
  return [...kept, greatest];
}

function namedAxis(field: RunField, values: readonly SettingValue[]): PlotAxis {
  const names = values.map(String).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const at = (place: number) => (names.length < 2 ? 0.5 : place / (names.length - 1));
  return {
    field,
    place: (run) => {
      const value = field.value(run);
      return isPresent(value) ? at(names.indexOf(String(value))) : undefined;
    },
    ticks: names.slice(0, 12).map((label, place) => ({ at: at(place), label: label.slice(0, 16) })),
  };
}

function isPresent(value: SettingValue | undefined): value is SettingValue {
  return value !== undefined && value !== null;
}
