import { bytesToBase64 } from "./base64.js";

const MAX_REMEMBERED_NAMES = 1_000;
const MAX_REMEMBERED_LENGTH = 64;

/** Messages have the same few names again and again; some are the users' own, in any number. */
function remembered(convert: (key: string) => string): (key: string) => string {
  const names = new Map<string, string>();
  return (key) => {
    const known = names.get(key);
    if (known !== undefined) return known;
    const converted = convert(key);
    if (names.size < MAX_REMEMBERED_NAMES && key.length <= MAX_REMEMBERED_LENGTH) names.set(key, converted);
    return converted;
  };
}

/** The name that a name of the wire has here. */
export const snakeToCamel = remembered((key) =>
  key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
);

/** The name that a name of ours has on the wire. */
export const camelToSnake = remembered((key) =>
  key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
);

/** Renames the keys of a record for the other side; values are kept. */
export function convertKeys<T>(
  record: Readonly<Record<string, T>>,
  to: "camel" | "snake",
): Record<string, T> {
  const converted: Record<string, T> = {};
  for (const [key, value] of Object.entries(record))
    setOwn(converted, to === "camel" ? snakeToCamel(key) : camelToSnake(key), value);
  return converted;
}

/** Fields whose content belongs to the user or the server and is carried as it is. */
const OPAQUE: ReadonlySet<string> = new Set([
  "userMetadata",
  "metrics",
  "eventData",
  "eventDetails",
  "urls",
  "args",
  "kwargs",
]);

/** Fields that are maps by id where they are objects: the ids are kept, what they lead to is converted. */
const MAP_BY_ID: ReadonlySet<string> = new Set(["sessions"]);

/** `Array.from` makes an object per element on the way. */
export function toNumbers(values: ArrayLike<number>): number[] {
  const numbers = new Array<number>(values.length);
  for (let index = 0; index < values.length; index++) numbers[index] = values[index]!;
  return numbers;
}

/** A value as JSON for the wire: snake_case names, typed arrays as lists, bytes as base64; undefined is left out. */
export function toWireJson(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (value instanceof Uint8Array) return bytesToBase64(value);
  if (ArrayBuffer.isView(value)) return toNumbers(value as Float64Array);
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return value.map(toWireJson);
  const converted: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue;
    setOwn(converted, camelToSnake(key), convertField(key, item, toWireJson));
  }
  return converted;
}

/** JSON from the wire with camelCase names. Unknown fields are kept; nothing is checked. */
export function fromWireJson<T>(value: unknown): T {
  return readValue(value) as T;
}

function readValue(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(readValue);
  const converted: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) {
    const camel = snakeToCamel(key);
    setOwn(converted, camel, convertField(camel, item, readValue));
  }
  return converted;
}

function convertField(camelKey: string, value: unknown, convert: (value: unknown) => unknown): unknown {
  if (OPAQUE.has(camelKey)) return value;
  if (MAP_BY_ID.has(camelKey) && typeof value === "object" && value !== null && !Array.isArray(value)) {
    const converted: Record<string, unknown> = {};
    for (const [id, item] of Object.entries(value)) setOwn(converted, id, convert(item));
    return converted;
  }
  return convert(value);
}

/** Plain assignment, but for `__proto__`, which a hostile answer could use to change what the object inherits. */
export function setOwn<T>(target: Record<string, T>, key: string, value: T): void {
  if (key === "__proto__") {
    Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
  } else {
    target[key] = value;
  }
}
