import { TinkerError } from "../errors.js";

/** A number as it was written, so that `1.0` stays a float and a long integer stays exact. */
export class JsonNumber {
  /** As Python prints it. */
  readonly text: string;

  constructor(source: string) {
    this.text = /^-?\d+$/.test(source) ? BigInt(source).toString() : floatText(Number(source));
  }

  toJSON(): number {
    return Number(this.text);
  }
}

/** An object whose keys keep their order: JavaScript would move those that look like integers to the front. */
export type JsonObject = ReadonlyMap<string, JsonValue>;

/** A tuple of Python's, which is written like a list in JSON. */
export class Tuple extends Array<unknown> {}

/** JSON of which nothing is lost between reading and writing. */
export type JsonValue = null | boolean | string | JsonNumber | readonly JsonValue[] | JsonObject;

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return value instanceof Map;
}

/** How JSON is printed; the defaults are those of Python's `json.dumps`. */
export interface PrintOptions {
  /** Between items, and between a key and its value. Default: `", "` and `": "`. */
  readonly separators?: readonly [item: string, key: string] | undefined;
  /** Writes what is not ASCII as `\uXXXX`. Default: true. */
  readonly ensureAscii?: boolean | undefined;
  /** Default: false. */
  readonly sortKeys?: boolean | undefined;
  /** Writes each value on a line of its own, this much further in than what it is part of. Default: all in one line. */
  readonly indent?: number | string | undefined;
}

/** JSON text as Python prints it. Plain objects of the user are taken too. */
export function printPythonJson(value: unknown, options: PrintOptions = {}): string {
  const { ensureAscii = true, sortKeys = false, indent } = options;
  const [item, key] = options.separators ?? [indent === undefined ? ", " : ",", ": "];
  const margin = typeof indent === "number" ? " ".repeat(indent) : indent;
  const quote = (text: string) => (ensureAscii ? toAscii(JSON.stringify(text)) : JSON.stringify(text));
  const enclose = ([open, close]: string, parts: readonly string[], depth: number): string => {
    if (margin === undefined || parts.length === 0) return open + parts.join(item) + close;
    const line = `\n${margin.repeat(depth)}`;
    return open + line + margin + parts.join(item + line + margin) + line + close;
  };
  const print = (part: unknown, depth: number): string => {
    if (part === null || part === undefined) return "null";
    if (typeof part === "string") return quote(part);
    if (typeof part === "boolean") return String(part);
    if (part instanceof JsonNumber) return part.text;
    if (typeof part === "number" || typeof part === "bigint") return numberText(part);
    if (Array.isArray(part)) {
      const items = Array.from(part, (each) => print(each, depth + 1));
      return enclose("[]", items, depth);
    }
    const shown = entriesOf(part as object);
    if (sortKeys) shown.sort(([a], [b]) => comparePoints(a, b));
    const members = shown.map(([name, entry]) => quote(String(name)) + key + print(entry, depth + 1));
    return enclose("{}", members, depth);
  };
  return print(value, 0);
}

/** The entries of an object: a `JsonObject`, or a plain one of the user's, without what is undefined. */
export function entriesOf(object: object): [string, unknown][] {
  const entries: [string, unknown][] =
    object instanceof Map ? [...(object as JsonObject)] : Object.entries(object);
  return entries.filter(([, entry]) => entry !== undefined);
}

/** The entry of a name in an object of either kind. */
export function entryOf(object: object, name: string): unknown {
  return object instanceof Map ? (object as JsonObject).get(name) : (object as Record<string, unknown>)[name];
}

/** Python's `str` of a value: `True`, `None`, a text as it is, though in quotes within a list or an object. */
export function printPythonText(value: unknown): string {
  return typeof value === "string" ? value : pythonRepr(value);
}

function pythonRepr(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "string") return quoteLikePython(value);
  if (typeof value === "boolean") return value ? "True" : "False";
  if (value instanceof Tuple) {
    const items = Array.from(value, pythonRepr);
    return `(${items.join(", ")}${items.length === 1 ? "," : ""})`;
  }
  if (Array.isArray(value)) return `[${value.map(pythonRepr).join(", ")}]`;
  if (isJsonContainer(value)) {
    return `{${entriesOf(value)
      .map(([name, entry]) => `${pythonRepr(name)}: ${pythonRepr(entry)}`)
      .join(", ")}}`;
  }
  const number = value instanceof JsonNumber ? value.text : numberText(value as number);
  return number.replace("NaN", "nan").replace("Infinity", "inf");
}

/** In single quotes, unless only double ones save an escape. */
function quoteLikePython(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes: Readonly<Record<string, string>> = {
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\\": "\\\\",
    [quote]: `\\${quote}`,
  };
  return quote + text.replace(/[\n\r\t\\'"]/g, (sign) => escapes[sign] ?? sign) + quote;
}

/** Whether a value is an object or a list. */
export function isJsonContainer(value: unknown): value is object {
  return typeof value === "object" && value !== null && !(value instanceof JsonNumber);
}

/** A number of JavaScript's as Python prints it: an integer without a point. */
export function numberText(value: number | bigint): string {
  if (typeof value === "bigint" || (Number.isInteger(value) && Math.abs(value) < 1e21)) {
    return BigInt(value).toString();
  }
  return floatText(value);
}

/** Python's `repr` of a float: the shortest digits, a point or an exponent, `NaN` and `Infinity` as `json` has them. */
export function floatText(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const [digits, power] = Math.abs(value).toExponential().split("e") as [string, string];
  const exponent = Number(power);
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${sign}${digits}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  const all = digits.replace(".", "");
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${all}`;
  const whole = all.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${all.slice(exponent + 1) || "0"}`;
}

const toAscii = (json: string): string =>
  json.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** By code points, as Python sorts; JavaScript would put what lies beyond the first plane before U+E000. */
export function comparePoints(a: string, b: string): number {
  const [left, right] = [Array.from(a), Array.from(b)];
  for (let index = 0; index < Math.min(left.length, right.length); index++) {
    const difference = left[index]!.codePointAt(0)! - right[index]!.codePointAt(0)!;
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const WORD = /null|true|false|NaN|-?Infinity/y;
const SPACE = /[ \t\n\r]*/y;

/** Reads what Python's `json.loads` reads, which besides JSON is `NaN` and `Infinity`. */
export function readPythonJson(text: string): JsonValue {
  let position = 0;

  const fail = (expected: string): never => {
    const found = position < text.length ? JSON.stringify(text.slice(position, position + 20)) : "the end";
    throw new TinkerError(`expected ${expected} at character ${position}, got ${found}`);
  };
  const match = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = position;
    const found = pattern.exec(text)?.[0];
    if (found !== undefined) position += found.length;
    return found;
  };
  const take = (sign: string): boolean => {
    match(SPACE);
    if (text[position] !== sign) return false;
    position++;
    return true;
  };
  // Not with a pattern, which would overflow the stack at some megabytes: an image is as long as that.
  const readString = (): string => {
    const end = text[position] === '"' ? closingQuote(text, position) : -1;
    const value = parseString(text.slice(position, end + 1));
    if (value === undefined) return fail("a text in double quotes");
    position = end + 1;
    return value;
  };

  const readItems = (close: string, readItem: () => void): void => {
    if (take(close)) return;
    do readItem();
    while (take(","));
    if (!take(close)) fail(`"," or "${close}"`);
  };
  const readValue = (depth: number): JsonValue => {
    if (depth > 500) fail("fewer levels");
    match(SPACE);
    if (take("{")) {
      const object = new Map<string, JsonValue>();
      readItems("}", () => {
        match(SPACE);
        const name = readString();
        if (!take(":")) fail('":"');
        object.set(name, readValue(depth + 1));
      });
      return object;
    }
    if (take("[")) {
      const items: JsonValue[] = [];
      readItems("]", () => items.push(readValue(depth + 1)));
      return items;
    }
    if (text[position] === '"') return readString();
    const word = match(WORD);
    if (word !== undefined) return WORDS.has(word) ? WORDS.get(word)! : new JsonNumber(word);
    return new JsonNumber(match(NUMBER) ?? fail("a value"));
  };

  const value = readValue(0);
  match(SPACE);
  if (position < text.length) fail("the end");
  return value;
}

function closingQuote(text: string, open: number): number {
  let end = text.indexOf('"', open + 1);
  while (end !== -1 && isEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end;
}

function isEscaped(text: string, position: number): boolean {
  let backslashes = 0;
  while (text[position - 1 - backslashes] === "\\") backslashes++;
  return backslashes % 2 === 1;
}

function parseString(quoted: string): string | undefined {
  try {
    return JSON.parse(quoted) as string;
  } catch {
    return undefined;
  }
}

const WORDS: ReadonlyMap<string, null | boolean> = new Map([
  ["null", null],
  ["true", true],
  ["false", false],
] as const);
