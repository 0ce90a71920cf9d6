import { ValidationError } from "../errors.js";
import { checkKeys, checkObject, subfield } from "./check-keys.js";
import { describe } from "./describe.js";

/** Refuses a value that is not what a field takes; `field` is the name the error gives it. */
export type Rule = (value: unknown, field: string) => void;

/** A rule from a test and the words that complete "must be …". */
export function rule(expected: string, holds: (value: unknown) => boolean): Rule {
  return (value, field) => {
    if (!holds(value))
      throw new ValidationError(field, `${field} must be ${expected}, got ${describe(value)}`);
  };
}

const isFiniteNumber = (value: unknown): value is number =>
  typeof value === "number" && Number.isFinite(value);
const isInteger = (value: unknown): value is number => Number.isSafeInteger(value);

export const integer = rule("an integer", isInteger);
export const positiveInteger = rule("a positive integer", (value) => isInteger(value) && value > 0);
export const nonNegativeInteger = rule("a non-negative integer", (value) => isInteger(value) && value >= 0);
export const nonNegative = rule("a non-negative number", (value) => isFiniteNumber(value) && value >= 0);
export const fraction = rule(
  "a number from 0 to below 1",
  (value) => isFiniteNumber(value) && value >= 0 && value < 1,
);
export const boolean = rule("true or false", (value) => typeof value === "boolean");
export const text = rule("a non-empty string", (value) => typeof value === "string" && value !== "");

export type Rules<T> = { readonly [K in keyof Required<T>]: Rule };

/** Checks an option bag field by field and returns a copy without the fields that are undefined. */
export function checkOptions<T extends object>(
  value: unknown,
  rules: Rules<T>,
  field: string,
  required: readonly (keyof T & string)[] = [],
): T {
  checkObject(value, field || "request");
  checkKeys(value, new Set(Object.keys(rules)), field);
  const checked: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue;
    rules[key as keyof T](item, subfield(field, key));
    checked[key] = item;
  }
  for (const key of required) {
    if (checked[key] === undefined) rules[key](undefined, subfield(field, key));
  }
  return checked as T;
}
