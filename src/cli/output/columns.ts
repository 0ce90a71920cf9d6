/** Value of a column. In a table, several values share a line; in the view of one item, each has its own. */
export type Cell = string | number | boolean | null | undefined | readonly string[];

/** Kind of a value: decides how a table shows it. JSON and CSV contain it unchanged. */
export type ColumnKind = "text" | "number" | "bytes" | "time" | "dollars" | "flag";

/** Fields of an item that a column can show unchanged. */
type CellField<T> = { [K in keyof T]-?: T[K] extends Cell ? K & string : never }[keyof T];

/** A property of the printed items: a field, or the result of `value`. */
export type Column<T> = ColumnView &
  (
    | { readonly name: CellField<T>; readonly value?: undefined }
    | { readonly name: string; readonly value: (item: T) => Cell }
  );

interface ColumnView {
  /** Heading for people; `name` when absent. */
  readonly header?: string;
  /** Heading in CSV and field name in JSON. */
  readonly name: string;
  /** Kind of the values; "text" when absent. */
  readonly kind?: ColumnKind;
  /** Shown in tables for null and undefined. Default: a dash. */
  readonly none?: string;
  /** Leaves the column out of a table without any values for it. */
  readonly isOptional?: true;
  /** Side at which a narrow terminal cuts the value; the end when absent. */
  readonly cutAt?: "middle" | "end";
  /** Least visible width before a narrow terminal leaves the column out; all of it when absent. */
  readonly leastWidth?: number;
  /** A narrow terminal first cuts, then leaves out, the columns of lowest importance. 0 when absent. */
  readonly importance?: number;
  /**
   * In a narrow terminal, puts the value uncut on a line above the others, for text that people copy, such as paths.
   */
  readonly takesOwnLine?: true;
}

/** Columns that show fields unchanged, under their own names. */
export function plainColumns<T>(...names: readonly CellField<T>[]): Column<T>[] {
  return names.map((name) => ({ name }));
}

/** The value of a column in JSON and CSV. */
export function cellOf<T>({ name, value }: Column<T>, item: T): Cell {
  return value === undefined ? (item[name as keyof T] as Cell) : value(item);
}

/** The heading of a column for people. */
export const headerOf = ({ header, name }: ColumnView): string => header ?? name;

/** Whether a value is empty. */
export function isMissing(value: Cell): value is null | undefined {
  return (
    value === null || value === undefined || value === "" || (typeof value === "object" && value.length === 0)
  );
}

/** How a table shows the value of a column. */
export function shownCell<T>(column: Column<T>, item: T, nowMs: number): string {
  const value = cellOf(column, item);
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

/** Amounts are aligned right. */
export function isRightAligned({ kind }: ColumnView): boolean {
  return kind === "bytes" || kind === "number" || kind === "dollars";
}

/** User metadata as one line of key-value pairs. */
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

/** Bytes with a unit: 12 B, 3.4 kB, 560 MB. */
export function humanBytes(bytes: number): string {
  let value = bytes;
  let size = 0;
  // Without this check, 999,950 would round to "1000 kB".
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

/** A time as "5 minutes ago" or "in 3 days"; other text is unchanged. */
export function relativeTime(time: string, nowMs: number): string {
  const seconds = (Date.parse(time) - nowMs) / 1000;
  if (Number.isNaN(seconds)) return time;
  const distance = Math.abs(seconds);
  // A clock that is slightly off must not put the present into the future.
  if (distance < 5) return "just now";
  const [unit, length] = STEPS.findLast(([, from]) => distance >= from)!;
  const count = Math.floor(distance / length);
  const text = `${count} ${unit}${count === 1 ? "" : "s"}`;
  return seconds < 0 ? `${text} ago` : `in ${text}`;
}
