import {
  comparePoints,
  floatText,
  JsonNumber,
  printPythonJson,
  printPythonText,
  Tuple,
} from "../python-json.js";
import type { Budget } from "./budget.js";

/**
 * A value of a template: a text, a boolean, an integer as a number, a float as a `JsonNumber`, a list, a `Tuple`, a dict as a
 * `Map`, a `Namespace`, a `Generator`, a function, null for None and undefined for what is not defined.
 */
export type Value = unknown;

/** A function of a template, with positional and named arguments. */
export type Callable = (args: readonly Value[], named: ReadonlyMap<string, Value>) => Value;

/** An object whose fields a template may set. */
export class Namespace {
  readonly fields: Map<string, Value>;

  constructor(fields: Iterable<readonly [string, Value]>) {
    this.fields = new Map(fields);
  }
}

/** Values computed once, while they are iterated, such as those of the filter `map`: without a length, and not JSON. */
export class Generator {
  #make: () => readonly Value[];

  constructor(make: () => readonly Value[]) {
    this.#make = make;
  }

  take(): readonly Value[] {
    const items = this.#make();
    this.#make = () => [];
    return items;
  }
}

/** Text that the filter `safe` or `escape` gave: what is added to it is escaped. */
export class SafeText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  static escape(value: string | SafeText): string {
    if (value instanceof SafeText) return value.text;
    return value.replace(/[&<>"']/g, (sign) => `&${ENTITIES[sign]};`);
  }
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "amp",
  "<": "lt",
  ">": "gt",
  '"': "#34",
  "'": "#39",
};

/** A value of JavaScript as a template sees it. */
export function toValue(given: unknown): Value {
  if (typeof given === "number") return Number.isInteger(given) ? given : float(given);
  if (typeof given !== "object" || given === null) return given;
  if (given instanceof JsonNumber || given instanceof Map) return given;
  if (Array.isArray(given)) return given.map(toValue);
  return new Map(
    Object.entries(given)
      .filter(([, value]) => value !== undefined)
      .map(([key, value]) => [key, toValue(value)]),
  );
}

export const float = (value: number): JsonNumber => new JsonNumber(floatText(value));

/** Python's name for the type of a value. */
export function typeName(value: Value): string {
  if (value === undefined) return "Undefined";
  if (value === null) return "NoneType";
  if (value instanceof Tuple) return "tuple";
  if (Array.isArray(value)) return "list";
  if (value instanceof Map) return "dict";
  if (value instanceof JsonNumber) return isInteger(value) ? "int" : "float";
  if (value instanceof Generator) return "generator";
  if (value instanceof Namespace) return "Namespace";
  return { string: "str", boolean: "bool", number: "int" }[typeof value as string] ?? "function";
}

export function isTrue(value: Value): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (value instanceof Map) return value.size > 0;
  if (value instanceof JsonNumber) return Number(value.text) !== 0;
  if (value instanceof SafeText) return value.text !== "";
  return Boolean(value);
}

/** The number that a value is in arithmetic; undefined where it is none. */
export function numberOf(value: Value): number | undefined {
  if (typeof value === "number" || typeof value === "boolean") return Number(value);
  return value instanceof JsonNumber ? Number(value.text) : undefined;
}

export function isInteger(value: Value): boolean {
  return typeof value === "number" || (value instanceof JsonNumber && /^-?\d+$/.test(value.text));
}

/** The items of a value that a loop walks over. */
export function itemsIn(value: Value, budget: Budget): readonly Value[] {
  const items = walked(value);
  if (items === undefined) throw new Error(`'${typeName(value)}' object is not iterable`);
  budget.values(items.length);
  return items;
}

function walked(value: Value): readonly Value[] | undefined {
  if (value === undefined) return [];
  if (typeof value === "string") return Array.from(value);
  if (Array.isArray(value)) return value;
  if (value instanceof Map) return [...value.keys()];
  return value instanceof Generator ? value.take() : undefined;
}

/** Python's `len`. */
export function lengthOf(value: Value): number {
  if (value === undefined) return 0;
  if (typeof value === "string") return Array.from(value).length;
  if (Array.isArray(value)) return value.length;
  if (value instanceof Map) return value.size;
  throw new Error(`object of type '${typeName(value)}' has no len()`);
}

export function isEqual(left: Value, right: Value, budget: Budget): boolean {
  if (left === right) return true;
  budget.step();
  const [one, other] = [numberOf(left), numberOf(right)];
  if (one !== undefined && other !== undefined) return one === other;
  if (Array.isArray(left) && Array.isArray(right)) {
    if (left.length !== right.length || left instanceof Tuple !== right instanceof Tuple) return false;
    return left.every((item, index) => isEqual(item, right[index], budget));
  }
  if (left instanceof Map && right instanceof Map) {
    if (left.size !== right.size) return false;
    return [...left].every(([key, value]) => right.has(key) && isEqual(value, right.get(key), budget));
  }
  return false;
}

/** Below, equal to or above zero, as Python orders two values. */
export function compare(left: Value, right: Value, budget: Budget): number {
  budget.step();
  const [one, other] = [numberOf(left), numberOf(right)];
  if (one !== undefined && other !== undefined) return one - other;
  if (typeof left === "string" && typeof right === "string") {
    budget.characters(left.length + right.length);
    return comparePoints(left, right);
  }
  if (Array.isArray(left) && Array.isArray(right)) {
    const at = left.findIndex((item, index) => index >= right.length || !isEqual(item, right[index], budget));
    if (at === -1 || at >= right.length) return left.length - right.length;
    return compare(left[at], right[at], budget);
  }
  throw new Error(`'<' not supported between instances of '${typeName(left)}' and '${typeName(right)}'`);
}

/** Python's `str`. */
export function toText(value: Value, budget: Budget): string {
  if (typeof value === "string") return value;
  if (value === undefined) return "";
  if (value instanceof SafeText) return value.text;
  if (typeof value === "function" || value instanceof Generator || value instanceof Namespace)
    return `<${typeName(value)}>`;
  measure(value, 0, budget);
  return printPythonText(value);
}

/** Python's `repr`. */
export function reprOf(value: Value, budget: Budget): string {
  return typeof value === "string" ? toText([value], budget).slice(1, -1) : toText(value, budget);
}

/** How the filter `tojson` prints. */
export type JsonPrinting = Parameters<typeof printPythonJson>[1];

/** Python's `json.dumps`. */
export function jsonOf(value: Value, printing: JsonPrinting, budget: Budget, signs = 0): string {
  const { indent = 0 } = printing ?? {};
  measure(value, typeof indent === "string" ? indent.length : indent, budget, signs);
  checkJson(value);
  return printPythonJson(value, printing);
}

function checkJson(value: Value): void {
  if (Array.isArray(value)) value.forEach(checkJson);
  else if (value instanceof Map) value.forEach(checkJson);
  else if (
    !(value === null || value instanceof JsonNumber || (typeof value) in { string: 1, number: 1, boolean: 1 })
  )
    throw new Error(`Object of type ${typeName(value)} is not JSON serializable`);
}

/** Counts what a value takes when it is printed; a list that is in it several times as often. */
function measure(value: Value, indent: number, budget: Budget, signs = 0): void {
  let characters = 0;
  const visit = (part: Value, depth: number): void => {
    characters += (typeof part === "string" ? part.length : 8) + indent * depth + signs;
    budget.step();
    budget.checkLength(characters);
    if (Array.isArray(part)) for (const item of part) visit(item, depth + 1);
    else if (part instanceof Map)
      for (const [key, item] of part) {
        characters += String(key).length + indent * depth;
        visit(item, depth + 1);
      }
  };
  visit(value, 0);
  budget.characters(characters);
}
