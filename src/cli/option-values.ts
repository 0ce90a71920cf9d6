import { InvalidArgumentError } from "commander";

/** Reads a whole number between two bounds, both included. */
export function wholeNumber(lowest: number, highest: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < lowest || value > highest) {
      throw new InvalidArgumentError(`It must be a whole number from ${lowest} to ${highest}.`);
    }
    return value;
  };
}

/** Collects the values of a repeatable option. */
export function gathered<T>(read: (text: string) => T): (text: string, previous?: readonly T[]) => T[] {
  return (text, previous = []) => [...previous, read(text)];
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Reads a duration as milliseconds: a number of seconds, or one with a unit. */
export function duration(text: string): number {
  const [, digits, unit = "s"] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text.trim()) ?? [];
  const milliseconds = Math.round(Number(digits) * (UNIT_MS[unit] ?? Number.NaN));
  if (!(milliseconds > 0)) {
    throw new InvalidArgumentError(
      `It must be a number of seconds, or a number with a unit: ${Object.keys(UNIT_MS).join(", ")}.`,
    );
  }
  return milliseconds;
}

/** Reads a time as ISO 8601 (UTC if no zone is given), or as a duration before now. */
export function pastTime(text: string): Date {
  if (/^\d+(?:\.\d+)?(?:ms|s|m|h|d)$/.test(text)) return new Date(Date.now() - duration(text));
  const isLocal = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?$/.test(text);
  const time = new Date(isLocal ? `${text.replace(" ", "T")}Z` : text);
  if (!/^\d{4}-\d\d-\d\d/.test(text) || Number.isNaN(time.getTime())) {
    throw new InvalidArgumentError(
      "It must be a time such as 2026-01-31 or 2026-01-31T08:00:00Z, or an age such as 7d.",
    );
  }
  return time;
}
