import { ValidationError } from "../../errors.js";
import { closestName, describe } from "./describe.js";

/** Joins a field and its part for an error message; an empty field stands for the value itself. */
export function subfield(field: string, key: string): string {
  return field === "" ? key : `${field}.${key}`;
}

/** The error for a value that is not what it must be. */
export function wrongValue(path: string, expected: string, given: unknown): ValidationError {
  return new ValidationError(path, `${path} must be ${expected}, got ${describe(given)}`);
}

/** An error whose sentence begins with the field that it is about: `wrongField("best", "needs evaluations")`. */
export function wrongField(path: string, why: string): ValidationError {
  return new ValidationError(path, `${path} ${why}`);
}

/** Refuses anything but a plain object of options. */
export function checkObject(value: unknown, field: string): asserts value is Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value) || ArrayBuffer.isView(value)) {
    throw wrongValue(field, "an object", value);
  }
}

/** Refuses keys that are not among the known ones and says which one was probably meant. */
export function checkKeys(value: object, known: ReadonlySet<string>, field: string): void {
  for (const key of Object.keys(value)) {
    if (!known.has(key)) throw unknownField(key, known, field);
  }
}

/** The error for a key that is not among the known ones. */
export function unknownField(key: string, known: Iterable<string>, field: string): ValidationError {
  const path = subfield(field, key);
  const names = [...known];
  const meant = closestName(key, names);
  const hint =
    meant === undefined ? `known fields are ${names.join(", ") || "none"}` : `did you mean ${meant}?`;
  return new ValidationError(path, `unknown field ${path}; ${hint}`);
}
