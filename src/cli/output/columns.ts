/** Of several values a table of things shows all in one line, and that of one thing each on its own. */
export type Cell = string | number | boolean | null | undefined | readonly string[];

/** What a value is decides how a table shows it; JSON and CSV have it as it is. */
export type ColumnKind = "text" | "number" | "bytes" | "time" | "dollars" | "flag";

/** One property of the things that are printed. */
export interface Column<T> {
  /** Its name for people. */
  readonly header: string;
  /** Its name for programs: the heading in CSV, and the field's name in JSON where there is one. */
  readonly name: string;
  readonly value: (item: T) => Cell;
  /** "text" when absent. */
  readonly kind?: ColumnKind;
  /** What a table shows for null and undefined; a dash when absent. */
  readonly none?: string;
  /** Left out of a table in which nothing has a value for it. */
  readonly isOptional?: true;
  /** Where a narrow terminal cuts it; at the end when absent. */
  readonly cutAt?: "middle" | "end";
  /** How much of it must be seen before a narrow terminal goes without the column; all of it when absent. */
  readonly leastWidth?: number;
  /** In a narrow terminal the least important columns are cut, then left out, first. 0 when absent. */
  readonly importance?: number;
  /** In a narrow terminal it stands whole on a line above the others, for what people copy: paths, for example. */
  readonly takesOwnLine?: true;
}

/** Whether there is nothing to show. */
export function isMissing(value: Cell): value is null | undefined {
  return (
    value === null || value === undefined || value === "" || (typeof value === "object" && value.length === 0)
  );
}

/** How a table shows the value of a column. */
export function shownCell<T>(column: Column<T>, item: T, nowMs: number): string {
  const value = column.value(item);
  if (isMissing(value)) return column.none ?? "-";
  if (typeof value === "object") return value.join(", ");
  switch (column.kind) {
    case "bytes":
      return humanBytes(Number(value));
    case "time":
      return relativeTime(String(value), nowMs);
    case "dollars":
      return `$${Number(value).toFixed(Number(value) < 0.1 ? 4 : 2)}`;
    case "number":
      return Number(value).toLocaleString("en-US");
    case "flag":
      return value ? "yes" : "no";
    case "text":
    case undefined:
      return String(value);
    default:
      return column.kind satisfies never;
  }
}

/** Amounts stand at the right of their column. */
export function isRightAligned({ kind }: Column<never>): boolean {
  return kind === "bytes" || kind === "number" || kind === "dollars";
}

/** The owner's own key-value pairs, as one line. */
export function metadataColumn<
  T extends { userMetadata?: Readonly<Record<string, string>> | null },
>(): Column<T> {
  return {
    header: "Metadata",
    name: "userMetadata",
    value: ({ userMetadata }) => {
      const pairs = Object.entries(userMetadata ?? {});
      return pairs.map(([key, value]) => `${key}=${value}`).join(", ");
    },
  };
}

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

/** 12 B, 3.4 kB, 560 MB. */
export function humanBytes(bytes: number): string {
  let value = bytes;
  let size = 0;
  // Rounded, 999,950 would be "1000 kB".
  while (value >= 999.5 && size < SIZES.length - 1) {
    value /= 1000;
    size += 1;
  }
  return `${size > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} ${SIZES[size]}`;
}

const STEPS: readonly (readonly [unit: string, seconds: number])[] = [
  ["second", 1],
  ["minute", 60],
  ["hour", 3600],
  ["day", 86_400],
  ["month", 2_629_800],
  ["year", 31_557_600],
];

/** 5 minutes ago, in 3 days; what is no time stays as it is. */
export function relativeTime(time: string, nowMs: number): string {
  const seconds = (Date.parse(time) - nowMs) / 1000;
  if (Number.isNaN(seconds)) return time;
  const distance = Math.abs(seconds);
  // A clock that is a little off must not put the present into the future.
  if (distance < 5) return "just now";
  const [unit, length] = STEPS.findLast(([, from]) => distance >= from)!;
  const count = Math.floor(distance / length);
  const text = `${count} ${unit}${count === 1 ? "" : "s"}`;
  return seconds < 0 ? `${text} ago` : `in ${text}`;
}
