import { JsonNumber, Tuple } from "../python-json.js";
import { SPACE, strip, stripEnd, stripStart } from "../python-text.js";
import type { Budget } from "./budget.js";
import {
  type Callable,
  isEqual,
  isInteger,
  lengthOf,
  Namespace,
  numberOf,
  reprOf,
  SafeText,
  toText,
  typeName,
  type Value,
} from "./values.js";

const WORD = new RegExp(`(?:(?!${SPACE}).)+`, "gs");

type Method<T> = (
  self: T,
  args: readonly Value[],
  named: ReadonlyMap<string, Value>,
  budget: Budget,
) => Value;

/** Names that change a list or a dict, which templates must not. */
const MUTATING = new Set(
  ["append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault"].concat(
    "sort",
    "update",
  ),
);

const STRING_METHODS: Readonly<Record<string, Method<string>>> = {
  strip: (text, [signs]) => strip(text, optionalText(signs)),
  lstrip: (text, [signs]) => stripStart(text, optionalText(signs)),
  rstrip: (text, [signs]) => stripEnd(text, optionalText(signs)),
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  title: (text) => titleCase(text, /\p{L}+/gu),
  capitalize: (text) => capitalized(text),
  startswith: (text, [parts]) => anyOf(parts, (part) => text.startsWith(part)),
  endswith: (text, [parts]) => anyOf(parts, (part) => text.endsWith(part)),
  removeprefix: (text, [part]) =>
    text.startsWith(needText(part)) ? text.slice(needText(part).length) : text,
  removesuffix: (text, [part]) =>
    part !== "" && text.endsWith(needText(part)) ? text.slice(0, -needText(part).length) : text,
  split: (text, args, named, budget) => split(text, args, named, budget),
  rsplit: (text, [sign, most], named, budget) => {
    const turned = (each: Value) => (typeof each === "string" ? reversed(each) : each);
    const parts = split(reversed(text), [turned(sign), most], named, budget);
    return parts.map((part) => reversed(part)).reverse();
  },
  splitlines: (text) => splitLines(text),
  partition: (text, [sign]) => {
    const at = text.indexOf(needText(sign));
    return at === -1
      ? Tuple.of(text, "", "")
      : Tuple.of(text.slice(0, at), sign, text.slice(at + needText(sign).length));
  },
  rpartition: (text, [sign]) => {
    const at = text.lastIndexOf(needText(sign));
    return at === -1
      ? Tuple.of("", "", text)
      : Tuple.of(text.slice(0, at), sign, text.slice(at + needText(sign).length));
  },
  replace: (text, [from, to, count], named, budget) =>
    replaceText(text, needText(from), needText(to), count ?? named.get("count"), budget),
  join: (text, [items], _, budget) => {
    const parts = (items as readonly Value[]).map(needText);
    return joined(parts, text, budget);
  },
  find: (text, [part]) => text.indexOf(needText(part)),
  rfind: (text, [part]) => text.lastIndexOf(needText(part)),
  count: (text, [part]) => occurrences(text, needText(part)),
  isdigit: (text) => /^\p{Nd}+$/u.test(text),
  isnumeric: (text) => /^\p{N}+$/u.test(text),
  isalpha: (text) => /^\p{L}+$/u.test(text),
  isalnum: (text) => /^[\p{L}\p{N}]+$/u.test(text),
  isspace: (text) => text !== "" && strip(text) === "",
  isupper: (text) => text !== text.toLowerCase() && text === text.toUpperCase(),
  islower: (text) => text !== text.toUpperCase() && text === text.toLowerCase(),
  zfill: (text, [width], _, budget) =>
    padded(text, width, budget, (missing) => text.replace(/^[+-]?/, `$&${"0".repeat(missing)}`)),
  ljust: (text, [width], _, budget) => padded(text, width, budget, (missing) => text + " ".repeat(missing)),
  rjust: (text, [width], _, budget) => padded(text, width, budget, (missing) => " ".repeat(missing) + text),
  format: formatBraces,
};

const DICT_METHODS: Readonly<Record<string, Method<Map<Value, Value>>>> = {
  get: (dict, [key, otherwise = null]) => (dict.has(key) ? dict.get(key) : otherwise),
  items: (dict) => [...dict].map(([key, value]) => Tuple.of(key, value)),
  keys: (dict) => [...dict.keys()],
  values: (dict) => [...dict.values()],
  copy: (dict) => new Map(dict),
};

const LIST_METHODS: Readonly<Record<string, Method<readonly Value[]>>> = {
  index: (list, [value], _, budget) => list.findIndex((item) => isEqual(item, value, budget)),
  count: (list, [value], _, budget) => list.filter((item) => isEqual(item, value, budget)).length,
  copy: (list) => [...list],
};

/** A value's attribute, as `value.name` finds it: a method first, then what a dict holds under the name. */
export function attributeOf(value: Value, name: string, budget: Budget): Value {
  if (value === undefined) throw new Error(`what is undefined has no attribute '${name}'`);
  if (value instanceof Namespace) return value.fields.get(name);
  if (value instanceof SafeText) return attributeOf(value.text, name, budget);
  const method = methodOf(value, name, budget);
  return method ?? (value instanceof Map ? value.get(name) : undefined);
}

/** The value of `value[key]`: an item, or else an attribute. */
export function itemOf(value: Value, key: Value, budget: Budget): Value {
  if (value instanceof Map && value.has(key)) return value.get(key);
  if (typeof key === "string")
    return value instanceof Map ? methodOf(value, key, budget) : attributeOf(value, key, budget);
  if (value === undefined) throw new Error(`what is undefined has no item ${toText(key, budget)}`);
  const index = isInteger(key) || typeof key === "boolean" ? numberOf(key) : undefined;
  if (index === undefined) return undefined;
  if (typeof value === "string") return characterAt(value, index);
  return Array.isArray(value) ? (value as Value[]).at(index) : undefined;
}

/** Texts are counted in code points, as in Python. */
function characterAt(text: string, index: number): string | undefined {
  return Array.from(text).at(index);
}

/** Python's `value[start:stop:step]`. */
export function sliceOf(value: Value, bounds: readonly [Value, Value, Value], budget: Budget): Value {
  if (typeof value !== "string" && !Array.isArray(value))
    throw new Error(`'${typeName(value)}' object cannot be sliced`);
  const items: Value[] = typeof value === "string" ? Array.from(value) : value;
  const [start, stop, by] = bounds.map((bound) => {
    if (bound === undefined || bound === null) return undefined;
    if (isInteger(bound)) return numberOf(bound);
    throw new Error("slice indices must be integers or None");
  });
  const step = by ?? 1;
  if (step === 0) throw new Error("slice step cannot be zero");
  const { length } = items;
  const clamp = (index: number) =>
    step > 0
      ? Math.min(Math.max(index < 0 ? index + length : index, 0), length)
      : Math.min(Math.max(index < 0 ? index + length : index, -1), length - 1);
  const [first, last] = [
    clamp(start ?? (step > 0 ? 0 : length)),
    stop === undefined ? (step > 0 ? length : -1) : clamp(stop),
  ];
  budget.values(Math.max(0, Math.ceil((last - first) / step)));
  const taken: Value[] = [];
  for (let index = first; step > 0 ? index < last : index > last; index += step) taken.push(items[index]);
  if (typeof value === "string") return taken.join("");
  return value instanceof Tuple ? Tuple.from(taken) : taken;
}

function methodOf(value: Value, name: string, budget: Budget): Callable | undefined {
  if ((Array.isArray(value) || value instanceof Map) && MUTATING.has(name))
    return () => {
      throw new Error(`a template must not change a ${typeName(value)}: .${name}() is not allowed`);
    };
  const methods: Readonly<Record<string, Method<never>>> =
    typeof value === "string"
      ? STRING_METHODS
      : value instanceof Map
        ? DICT_METHODS
        : Array.isArray(value)
          ? LIST_METHODS
          : {};
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
  return method && ((args, named) => method(value as never, args, named, budget));
}

export function needText(value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof SafeText) return value.text;
  throw new Error(`a text is needed, got ${typeName(value)}`);
}

function optionalText(value: Value): string | undefined {
  return value === undefined || value === null ? undefined : needText(value);
}

function anyOf(parts: Value, fits: (part: string) => boolean): boolean {
  return parts instanceof Tuple ? parts.some((part) => fits(needText(part))) : fits(needText(parts));
}

function split(
  text: string,
  args: readonly Value[],
  named: ReadonlyMap<string, Value>,
  budget: Budget,
): string[] {
  const sign = args[0] ?? named.get("sep") ?? null;
  const given = numberOf(args[1] ?? named.get("maxsplit") ?? -1) ?? -1;
  const most = given < 0 ? Number.POSITIVE_INFINITY : given;
  if (sign === "") throw new Error("empty separator");
  budget.characters(text.length);
  if (sign !== null) {
    const parts = text.split(needText(sign));
    budget.pieces(parts.length);
    return parts.length <= most ? parts : [...parts.slice(0, most), parts.slice(most).join(needText(sign))];
  }
  const parts: string[] = [];
  for (const { 0: word, index } of text.matchAll(WORD)) {
    if (parts.length === most) return [...parts, text.slice(index)];
    parts.push(word);
  }
  budget.pieces(parts.length);
  return parts;
}

/** Python's `str.splitlines`, for the ends of lines that templates meet. */
export function splitLines(text: string): string[] {
  const lines = text.split(/\r\n|[\n\r\v\f\u0085\u2028\u2029]/);
  return lines.at(-1) === "" ? lines.slice(0, -1) : lines;
}

const reversed = (text: string): string => Array.from(text).reverse().join("");

export function capitalized(text: string): string {
  const [first = "", ...rest] = text;
  return first.toUpperCase() + rest.join("").toLowerCase();
}

export function titleCase(text: string, words: RegExp): string {
  return text.replace(words, capitalized);
}

export function occurrences(text: string, part: string): number {
  if (part === "") return text.length + 1;
  let count = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) count += 1;
  return count;
}

export function replaceText(text: string, from: string, to: string, count: Value, budget: Budget): string {
  const most = numberOf(count ?? -1) ?? -1;
  const found = occurrences(text, from);
  budget.characters(text.length + found * to.length);
  budget.pieces(found);
  if (most < 0) return text.replaceAll(from, () => to);
  let left = most;
  return text.replaceAll(from, (part) => (left-- > 0 ? to : part));
}

export function joined(parts: readonly string[], sign: string, budget: Budget): string {
  budget.characters(parts.reduce((sum, part) => sum + part.length + sign.length, 0));
  return parts.join(sign);
}

function padded(text: string, width: Value, budget: Budget, pad: (missing: number) => string): string {
  const missing = (numberOf(width) ?? 0) - lengthOf(text);
  if (missing <= 0) return text;
  budget.characters(text.length + missing);
  return pad(missing);
}

/** Python's `str.format` with places and names, without format specifications. */
function formatBraces(
  text: string,
  args: readonly Value[],
  named: ReadonlyMap<string, Value>,
  budget: Budget,
): string {
  let next = 0;
  let length = 0;
  return text.replace(/\{\{|\}\}|\{([^{}]*)\}/g, (found, field: string | undefined) => {
    if (field === undefined) return found[0]!;
    const [, name = "", conversion] = /^(\w*)(?:!([rs]))?$/.exec(field) ?? [];
    if (!/^\w*(?:![rs])?$/.test(field)) throw new Error(`format() does not know {${field}}`);
    const index = name === "" ? next++ : Number(name);
    const value = Number.isNaN(index) ? named.get(name) : args[index];
    if (value === undefined) throw new Error(`format() has no value for {${field}}`);
    const written = conversion === "r" ? reprOf(value, budget) : toText(value, budget);
    length += written.length;
    budget.characters(length);
    return written;
  });
}

/** Python's `format % values`. */
export function formatPercent(text: string, given: Value, budget: Budget): string {
  const values = given instanceof Tuple ? [...given] : [given];
  let next = 0;
  let length = 0;
  return text.replace(
    /%(?:\((\w+)\))?([-0]?)(\d*)(?:\.(\d+))?([a-zA-Z%])/g,
    (found, name, flag, width, digits, kind) => {
      if (kind === "%") return "%";
      if (name === undefined && next >= values.length)
        throw new Error("not enough arguments for format string");
      const value = name === undefined ? values[next++] : given instanceof Map ? given.get(name) : undefined;
      const written = percentText(value, kind as string, digits as string | undefined, found, budget);
      length += Math.max(written.length, Number(width));
      budget.characters(length);
      return flag === "-"
        ? written.padEnd(Number(width))
        : written.padStart(Number(width), flag === "0" ? "0" : " ");
    },
  );
}

function percentText(
  value: Value,
  kind: string,
  digits: string | undefined,
  found: string,
  budget: Budget,
): string {
  if (kind === "s") return toText(value, budget);
  if (kind === "r") return reprOf(value, budget);
  const number = numberOf(value);
  if (number === undefined) throw new Error(`${found} needs a number, got ${typeName(value)}`);
  if (kind === "d" || kind === "i")
    return value instanceof JsonNumber && isInteger(value) ? value.text : String(Math.trunc(number));
  if (kind === "f") return number.toFixed(Math.min(100, Number(digits ?? 6)));
  throw new Error(`unsupported format ${found}`);
}
