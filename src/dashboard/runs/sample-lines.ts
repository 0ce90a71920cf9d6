import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { parseJsonObject } from "../../training/json-lines.node.js";

import { shownText } from "./shown-message.js";

const MAX_FILE_BYTES = 256 << 20;

/** A line of a file of samples. */
export type SampleLine = Readonly<Record<string, unknown>>;

/** The lines of a file of samples; undefined for one that is not an object. */
export async function* sampleLines(
  path: string,
): AsyncGenerator<{ place: number; line: SampleLine | undefined }, void, undefined> {
  const stream = createReadStream(path, { end: MAX_FILE_BYTES });
  let place = -1;
  try {
    for await (const text of createInterface({ input: stream, crlfDelay: Number.POSITIVE_INFINITY })) {
      place += 1;
      if (text.trim() !== "") yield { place, line: parseJsonObject(text) };
    }
  } finally {
    stream.destroy();
  }
}

/** Objects in a list. */
export function fieldsIn(value: unknown): readonly SampleLine[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === "object" && item !== null) : [];
}

/** A finite number. */
export function finiteNumber(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

/** A list of whole numbers; empty if it is anything else. */
export function numbersIn(value: unknown): readonly number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item)) ? value : [];
}

/** Numbers by name; booleans count as 0 and 1. */
export function numbersOf(value: unknown): Readonly<Record<string, number | null>> {
  return Object.fromEntries(
    Object.entries(value ?? {}).map(([name, item]) => [
      name,
      typeof item === "boolean" ? Number(item) : (finiteNumber(item) ?? null),
    ]),
  );
}

/** Texts by name. */
export function textsOf(value: unknown): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(value ?? {}).map(([name, item]) => [name, shownText(item)]));
}
