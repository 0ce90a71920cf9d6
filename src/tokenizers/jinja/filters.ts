import { Tuple } from "../python-json.js";
import { strip } from "../python-text.js";
import type { Budget } from "./budget.js";
import {
  attributeOf,
  capitalized,
  formatPercent,
  itemOf,
  joined,
  needText,
  replaceText,
  splitLines,
  titleCase,
} from "./methods.js";
import {
  compare,
  float,
  Generator,
  isEqual,
  isInteger,
  isTrue,
  itemsIn,
  jsonOf,
  lengthOf,
  numberOf,
  SafeText,
  toText,
  typeName,
  type Value,
} from "./values.js";

type Named = ReadonlyMap<string, Value>;
type Filter = (value: Value, args: readonly Value[], named: Named, budget: Budget) => Value;
type Test = (value: Value, args: readonly Value[], budget: Budget) => boolean;

/** Arguments in the order of their names, whether given by place or by name. */
function bind(names: readonly string[], args: readonly Value[], named: Named): Value[] {
  return names.map((name, index) => args[index] ?? named.get(name));
}

const count: Filter = (value) => lengthOf(value);
const keepWhere =
  (isKept: boolean): Filter =>
  (value, [test, ...args], _, budget) =>
    new Generator(() =>
      itemsOrNone(value, budget).filter((item) => holds(item, test, args, budget) === isKept),
    );
const keepWhereAttribute =
  (isKept: boolean): Filter =>
  (value, [name, test, ...args], _, budget) =>
    new Generator(() =>
      itemsOrNone(value, budget).filter(
        (item) => holds(pathOf(item, name, budget), test, args, budget) === isKept,
      ),
    );
const extreme =
  (sign: number): Filter =>
  (value, args, named, budget) => {
    const key = sortKey(...(bind(["case_sensitive", "attribute"], args, named) as [Value, Value]), budget);
    return itemsIn(value, budget).reduce(
      (best: Value, item) =>
        best === undefined || sign * compare(key(item), key(best), budget) > 0 ? item : best,
      undefined,
    );
  };
const otherwise: Filter = (value, args, named) => {
  const [instead = "", isForFalse = false] = bind(["default_value", "boolean"], args, named);
  return value === undefined || (isTrue(isForFalse) && !isTrue(value)) ? instead : value;
};
const escaped: Filter = (value, _, __, budget) => {
  const text = toText(value, budget);
  budget.characters(5 * text.length);
  return new SafeText(SafeText.escape(text));
};

const FILTERS: Readonly<Record<string, Filter>> = {
  abs: (value) => (isInteger(value) ? Math.abs(numberOf(value)!) : float(Math.abs(needNumber(value)))),
  attr: (value, [name], _, budget) =>
    value instanceof Map ? undefined : attributeOf(value, needText(name), budget),
  capitalize: (value, _, __, budget) => capitalized(toText(value, budget)),
  count,
  d: otherwise,
  default: otherwise,
  dictsort: (value, args, named, budget) => {
    const [isExact, by = "key", isReversed] = bind(["case_sensitive", "by", "reverse"], args, named);
    if (!(value instanceof Map)) throw new Error(`dictsort needs a dict, got ${typeName(value)}`);
    const pairs = [...value].map(([key, item]) => Tuple.of(key, item));
    return sorted(pairs, sortKey(isExact, by === "key" ? 0 : 1, budget), isTrue(isReversed), budget);
  },
  e: escaped,
  escape: escaped,
  first: (value, _, __, budget) => itemsIn(value, budget)[0],
  float: (value, [instead = float(0)]) => {
    const number = typeof value === "string" && strip(value) !== "" ? Number(strip(value)) : numberOf(value);
    return number === undefined || Number.isNaN(number) ? instead : float(number);
  },
  format: (value, args, _, budget) => formatPercent(toText(value, budget), Tuple.from(args), budget),
  indent: (value, args, named, budget) => {
    const [width = 4, isFirst, isBlank] = bind(["width", "first", "blank"], args, named);
    const [start = "", ...lines] = splitLines(`${toText(value, budget)}\n`);
    const size = typeof width === "string" ? width.length : needNumber(width);
    budget.characters(start.length + lines.reduce((sum, line) => sum + line.length + size + 1, size));
    const margin = typeof width === "string" ? width : " ".repeat(size);
    const indented = lines.map((line) => `\n${line !== "" || isTrue(isBlank) ? margin : ""}${line}`);
    return (isTrue(isFirst) ? margin : "") + start + indented.join("");
  },
  int: (value, [instead = 0]) => {
    const number = typeof value === "string" ? integerOf(value) : numberOf(value);
    if (value === undefined) throw new Error("undefined is not a number");
    return number === undefined || !Number.isFinite(number) ? instead : Math.trunc(number);
  },
  items: (value) => {
    if (value === undefined) return new Generator(() => []);
    if (!(value instanceof Map)) throw new Error("Can only get item pairs from a mapping.");
    return new Generator(() => [...value].map(([key, item]) => Tuple.of(key, item)));
  },
  join: (value, args, named, budget) => {
    const [sign = "", attribute] = bind(["d", "attribute"], args, named);
    const items = itemsIn(value, budget).map((item) =>
      attribute === undefined ? item : pathOf(item, attribute, budget),
    );
    return joined(
      items.map((item) => toText(item, budget)),
      toText(sign, budget),
      budget,
    );
  },
  last: (value, _, __, budget) => itemsIn(value, budget).at(-1),
  length: count,
  list: (value, _, __, budget) => [...itemsIn(value, budget)],
  lower: (value, _, __, budget) => toText(value, budget).toLowerCase(),
  map: (value, [filter, ...args], named, budget) => {
    const attribute = named.get("attribute");
    if (attribute === undefined)
      return new Generator(() =>
        itemsOrNone(value, budget).map((item) => applyFilter(needText(filter), item, args, named, budget)),
      );
    return new Generator(() =>
      itemsOrNone(value, budget).map((item) => pathOf(item, attribute, budget) ?? named.get("default")),
    );
  },
  max: extreme(1),
  min: extreme(-1),
  reject: keepWhere(false),
  rejectattr: keepWhereAttribute(false),
  replace: (value, args, named, budget) => {
    const [from, to, most] = bind(["old", "new", "count"], args, named);
    return replaceText(toText(value, budget), toText(from, budget), toText(to, budget), most, budget);
  },
  reverse: (value, _, __, budget) => {
    const items = [...itemsIn(value, budget)].reverse();
    return typeof value === "string" ? items.join("") : new Generator(() => items);
  },
  round: (value, args, named) => {
    const [digits = 0, method = "common"] = bind(["precision", "method"], args, named);
    const size = 10 ** needNumber(digits);
    const scaled = needNumber(value) * size;
    if (method !== "common")
      return float((method === "ceil" ? Math.ceil(scaled) : Math.floor(scaled)) / size);
    // Python rounds halves to even.
    const isHalf = Math.abs(scaled % 1) === 0.5;
    return float((isHalf ? 2 * Math.round(scaled / 2) : Math.round(scaled)) / size);
  },
  safe: (value, _, __, budget) => new SafeText(toText(value, budget)),
  select: keepWhere(true),
  selectattr: keepWhereAttribute(true),
  sort: (value, args, named, budget) => {
    const [isReversed, isExact, attribute] = bind(["reverse", "case_sensitive", "attribute"], args, named);
    return sorted(itemsIn(value, budget), sortKey(isExact, attribute, budget), isTrue(isReversed), budget);
  },
  string: (value, _, __, budget) => toText(value, budget),
  sum: (value, args, named, budget) => {
    const [attribute, start = 0] = bind(["attribute", "start"], args, named);
    const numbers = itemsIn(value, budget).map((item) =>
      attribute === undefined ? item : pathOf(item, attribute, budget),
    );
    const total = numbers.reduce((sum: number, number) => sum + needNumber(number), needNumber(start));
    return [start, ...numbers].every((number) => isInteger(number) || typeof number === "boolean")
      ? total
      : float(total);
  },
  title: (value, _, __, budget) => titleCase(toText(value, budget), /[^-\s({[<]+/gu),
  tojson: (value, args, named, budget) => {
    const names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    const [isAscii = false, indent, separators, isSorted] = bind(names, args, named);
    const printing = {
      ensureAscii: isTrue(isAscii),
      sortKeys: isTrue(isSorted),
      ...(indent !== undefined && indent !== null && { indent: needIndent(indent, budget) }),
      ...(Array.isArray(separators) && {
        separators: [needText(separators[0]), needText(separators[1])] as const,
      }),
    };
    const longest = (printing.separators ?? []).reduce((sum, sign) => sum + sign.length, 0);
    return jsonOf(value, printing, budget, longest);
  },
  trim: (value, [signs], named, budget) => {
    const chars = signs ?? named.get("chars") ?? undefined;
    return strip(toText(value, budget), chars === undefined ? undefined : needText(chars));
  },
  unique: (value, args, named, budget) => {
    const key = sortKey(...(bind(["case_sensitive", "attribute"], args, named) as [Value, Value]), budget);
    const seen: Value[] = [];
    return new Generator(() =>
      itemsIn(value, budget).filter((item) => {
        const known = key(item);
        const isNew = !seen.some((each) => isEqual(each, known, budget));
        budget.step(seen.length);
        if (isNew) seen.push(known);
        return isNew;
      }),
    );
  },
  upper: (value, _, __, budget) => toText(value, budget).toUpperCase(),
  wordcount: (value, _, __, budget) => toText(value, budget).match(/\w+/gu)?.length ?? 0,
};

const compared =
  (fits: (difference: number) => boolean): Test =>
  (value, [other], budget) =>
    fits(compare(value, other, budget));
const equal: Test = (value, [other], budget) => isEqual(value, other, budget);
const unequal: Test = (...given) => !equal(...given);
const [less, atMost, more, atLeast] = [
  compared((difference) => difference < 0),
  compared((difference) => difference <= 0),
  compared((difference) => difference > 0),
  compared((difference) => difference >= 0),
];

const TESTS: Readonly<Record<string, Test>> = {
  boolean: (value) => typeof value === "boolean",
  callable: (value) => typeof value === "function",
  defined: (value) => value !== undefined,
  divisibleby: (value, [by]) => needNumber(value) % needNumber(by) === 0,
  even: (value) => needNumber(value) % 2 === 0,
  false: (value) => value === false,
  float: (value) => typeName(value) === "float",
  in: (value, [whole], budget) => contains(whole, value, budget),
  integer: (value) => isInteger(value),
  iterable: (value) =>
    value === undefined ||
    typeof value === "string" ||
    Array.isArray(value) ||
    value instanceof Map ||
    value instanceof Generator,
  lower: (value, _, budget) => {
    const text = toText(value, budget);
    return text !== text.toUpperCase() && text === text.toLowerCase();
  },
  mapping: (value) => value instanceof Map,
  none: (value) => value === null,
  number: (value) => numberOf(value) !== undefined,
  odd: (value) => Math.abs(needNumber(value) % 2) === 1,
  sameas: (value, [other]) => value === other,
  sequence: (value) =>
    value === undefined || typeof value === "string" || Array.isArray(value) || value instanceof Map,
  string: (value) => typeof value === "string",
  true: (value) => value === true,
  undefined: (value) => value === undefined,
  upper: (value, _, budget) => {
    const text = toText(value, budget);
    return text !== text.toLowerCase() && text === text.toUpperCase();
  },
  ...{ eq: equal, equalto: equal, "==": equal, ne: unequal, "!=": unequal },
  ...{ lt: less, lessthan: less, "<": less, le: atMost, "<=": atMost },
  ...{ gt: more, greaterthan: more, ">": more, ge: atLeast, ">=": atLeast },
};

export function applyFilter(
  name: string,
  value: Value,
  args: readonly Value[],
  named: Named,
  budget: Budget,
): Value {
  if (!Object.hasOwn(FILTERS, name)) throw new Error(`No filter named '${name}'.`);
  const plain = value instanceof SafeText ? value.text : value;
  return FILTERS[name]!(plain, args, named, budget);
}

export function applyTest(name: string, value: Value, args: readonly Value[], budget: Budget): boolean {
  if (!Object.hasOwn(TESTS, name)) throw new Error(`No test named '${name}'.`);
  return TESTS[name]!(value instanceof SafeText ? value.text : value, args, budget);
}

/** Python's `value in whole`. */
export function contains(whole: Value, value: Value, budget: Budget): boolean {
  if (typeof whole === "string") return whole.includes(needText(value));
  if (whole instanceof Map) return whole.has(value);
  return itemsIn(whole, budget).some((item) => isEqual(item, value, budget));
}

/** None and the like have no items for the filters that give a generator. */
function itemsOrNone(value: Value, budget: Budget): readonly Value[] {
  return isTrue(value) ? itemsIn(value, budget) : [];
}

function holds(value: Value, test: Value, args: readonly Value[], budget: Budget): boolean {
  return test === undefined ? isTrue(value) : applyTest(needText(test), value, args, budget);
}

/** A field of a field, such as `function.name`. */
function pathOf(value: Value, path: Value, budget: Budget): Value {
  const parts = isInteger(path) ? [path] : needText(path).split(".");
  return parts.reduce(
    (item: Value, part) => itemOf(item, /^\d+$/.test(String(part)) ? Number(part) : part, budget),
    value,
  );
}

function sortKey(isExact: Value, attribute: Value, budget: Budget): (item: Value) => Value {
  return (item) => {
    const key = attribute === undefined || attribute === null ? item : pathOf(item, attribute, budget);
    return typeof key === "string" && !isTrue(isExact) ? key.toLowerCase() : key;
  };
}

function sorted(
  items: readonly Value[],
  key: (item: Value) => Value,
  isReversed: boolean,
  budget: Budget,
): Value[] {
  return [...items].sort((one, other) => (isReversed ? -1 : 1) * compare(key(one), key(other), budget));
}

function needNumber(value: Value): number {
  const number = numberOf(value);
  if (number !== undefined) return number;
  throw new Error(`a number is needed, got ${typeName(value)}`);
}

function needIndent(indent: Value, budget: Budget): number | string {
  if (typeof indent === "string") return indent;
  const size = needNumber(indent);
  budget.characters(size);
  return size;
}

function integerOf(text: string): number | undefined {
  const written = strip(text).replaceAll("_", "");
  return /^[+-]?\d+(\.\d*)?(e[+-]?\d+)?$/i.test(written) ? Number(written) : undefined;
}
