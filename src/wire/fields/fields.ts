import { ValidationError } from "../../errors.js";
import { camelToSnake, setOwn } from "../json-keys.js";
import { checkObject, subfield, unknownField, wrongValue } from "./check-keys.js";
import { closestName } from "./describe.js";

/** Whether a field must be given; a defaulted one that is not stands for its default. */
export type Presence = "required" | "optional" | "defaulted";

/** One field of a message: what it may hold, and how it travels. `path` is the name that errors give it. */
export interface Field<T, P extends Presence = "required", Given = T> {
  readonly presence: P;
  /** Checks what a caller of ours gave. */
  check(value: unknown, path: string): T;
  /** Checks what came over the wire, where names are in snake_case and `null` may stand for absent. */
  read(json: unknown, path: string): T;
  /** The JSON that stands for a value; an error where JSON cannot carry it. */
  write(value: Given, path: string): unknown;
  readonly fallback?: T;
  /** The words that complete "must be …". */
  readonly expected?: string | undefined;
  /** The texts it may be, where they are listed. */
  readonly choices?: readonly string[] | undefined;
  /** The value that a text stands for, where it is not a text itself; checked afterwards. */
  readonly fromText?: ((text: string) => unknown) | undefined;
}

type AnyField = Field<unknown, Presence>;

/** The fields of a message by their camelCase names. */
export type Shape = Readonly<Record<string, AnyField>>;

type Read<F> = F extends Field<infer T, Presence, infer _> ? T : never;
type Sent<F> = F extends Field<unknown, Presence, infer Given> ? Given : never;
type KeysOf<S, P extends Presence> = {
  [K in keyof S]: S[K] extends { readonly presence: P } ? K : never;
}[keyof S];

/** A message as a caller gives it: fields with defaults may be left out. */
export type GivenMessage<S extends Shape> = {
  readonly [K in KeysOf<S, "required">]: Sent<S[K]>;
} & { readonly [K in KeysOf<S, "optional" | "defaulted">]?: Sent<S[K]> | undefined };

/** A message that has been checked or read: defaults are filled in. */
export type FilledMessage<S extends Shape> = {
  readonly [K in KeysOf<S, "required" | "defaulted">]: Read<S[K]>;
} & { readonly [K in KeysOf<S, "optional">]?: Read<S[K]> | undefined };

/** A field that is itself a message, or a message as a whole. */
export interface MessageField<S extends Shape> extends Field<FilledMessage<S>, "required", GivenMessage<S>> {
  readonly shape: S;
  write(value: GivenMessage<S>, path?: string): Record<string, unknown>;
}

/** For documented option types: the shape must have exactly their fields. */
export type FieldsOf<T> = { readonly [K in keyof Required<T>]: Field<Exclude<T[K], undefined>, Presence> };

/** A value with a check of its own, the same for callers and for the wire. */
export function customField<T>(check: (given: unknown, path: string) => T): Field<T> {
  return { presence: "required", check, read: check, write: (given) => given };
}

/** A value from a test, and the words that complete "must be …". */
export function value<T>(expected: string, holds: (value: unknown) => boolean): Field<T> {
  return {
    ...customField((given, path) => {
      if (holds(given)) return given as T;
      throw wrongValue(path, expected, given);
    }),
    expected,
  };
}

const numberFromText = (text: string) => (text.trim() === "" ? Number.NaN : Number(text));

/** A finite number that passes a test. */
export function numberThat(expected: string, holds: (value: number) => boolean): Field<number> {
  const isOne = (given: unknown) => typeof given === "number" && Number.isFinite(given) && holds(given);
  return { ...value<number>(expected, isOne), fromText: numberFromText };
}

export const number = numberThat("a finite number", () => true);
export const nonNegative = numberThat("a non-negative number", (given) => given >= 0);
export const positive = numberThat("a number above 0", (given) => given > 0);
export const fraction = numberThat("a number from 0 to below 1", (given) => given >= 0 && given < 1);
export const portion = numberThat("a number from 0 to 1", (given) => given >= 0 && given <= 1);
export const integer = numberThat("an integer", Number.isSafeInteger);
export const positiveInteger = numberThat(
  "a positive integer",
  (given) => Number.isSafeInteger(given) && given > 0,
);
export const twoOrMore = numberThat(
  "an integer of 2 or more",
  (given) => Number.isSafeInteger(given) && given >= 2,
);
export const nonNegativeInteger = numberThat(
  "a non-negative integer",
  (given) => Number.isSafeInteger(given) && given >= 0,
);
export const boolean = value<boolean>("true or false", (given) => typeof given === "boolean");
/** Any text, also the empty one. */
export const anyText = value<string>("a string", (given) => typeof given === "string");
export const text = value<string>("a non-empty string", (given) => typeof given === "string" && given !== "");

export function integerFrom(least: number, most: number): Field<number> {
  return numberThat(
    `an integer from ${least} to ${most}`,
    (given) => Number.isSafeInteger(given) && given >= least && given <= most,
  );
}

export function oneOf<const T extends string>(...choices: readonly T[]): Field<T> {
  const quoted = choices.map((choice) => `"${choice}"`);
  const expected = quoted.length === 1 ? quoted[0]! : `${quoted.slice(0, -1).join(", ")} or ${quoted.at(-1)}`;
  return { ...value(expected, (given) => choices.includes(given as T)), choices };
}

/** An object of ours or of the platform, recognized by a method that it has. */
export function having<T>(expected: string, method: keyof T & string): Field<T> {
  return value(expected, (given) => typeof (given as Partial<T> | null | undefined)?.[method] === "function");
}

export function functionOf<T>(expected = "a function"): Field<T> {
  return value(expected, (given) => typeof given === "function");
}

/** A signal that ends a call. */
export const abortSignal = having<AbortSignal>("an AbortSignal", "addEventListener");

/** One of two kinds of value, distinguished by a test for the first. */
export function eitherOf<A, B>(
  isFirst: (given: unknown) => boolean,
  first: Field<A>,
  second: Field<B>,
): Field<A | B> {
  const pick = (given: unknown) => (isFirst(given) ? first : second) as Field<A | B>;
  return {
    ...second,
    ...("shape" in first ? { shape: first.shape } : {}),
    check: (given, path) => pick(given).check(given, path),
    read: (given, path) => pick(given).read(given, path),
    write: (given, path) => pick(given).write(given, path),
  } as Field<A | B>;
}

/** Anything that JSON can carry, kept as it is: it belongs to the user or to the server. */
export const opaque: Field<unknown> = value("anything", () => true);

export function list<T>(item: Field<T>, limits: { least?: number; most?: number } = {}): Field<readonly T[]> {
  const { least = 0, most = Number.POSITIVE_INFINITY } = limits;
  const each = (items: unknown, path: string, read: (one: unknown, onePath: string) => T): readonly T[] => {
    if (!Array.isArray(items)) throw wrongValue(path, "a list", items);
    if (items.length < least || items.length > most) {
      const bounds = most === Number.POSITIVE_INFINITY ? `at least ${least}` : `${least} to ${most}`;
      const noun = bounds === "at least 1" ? "entry" : "entries";
      throw new ValidationError(path, `${path} must be a list of ${bounds} ${noun}, got ${items.length}`);
    }
    return items.map((one, index) => read(one, `${path}[${index}]`));
  };
  return {
    presence: "required",
    check: (items, path) => each(items, path, item.check),
    read: (items, path) => each(items, path, item.read),
    write: (items, path) => items.map((one, index) => item.write(one, `${path}[${index}]`)),
  };
}

export function optional<T, Given>(field: Field<T, "required", Given>): Field<T, "optional", Given> {
  return { ...field, presence: "optional" };
}

export function withDefault<T, Given>(
  field: Field<T, "required", Given>,
  fallback: NoInfer<T>,
): Field<T, "defaulted", Given> {
  return { ...field, presence: "defaulted", fallback };
}

/** A field in which `null` says something. */
export function nullable<T>(field: Field<T>): Field<T | null> {
  return {
    presence: "required",
    check: (given, path) => (given === null ? null : field.check(given, path)),
    read: (json, path) => (json === null ? null : field.read(json, path)),
    write: (given, path) => (given === null ? null : field.write(given, path)),
  };
}

/** A further rule for what comes over the wire: a server bounds what its clients may send. */
export function bounded<T>(field: Field<T>, expected: string, holds: (value: T) => boolean): Field<T> {
  return {
    ...field,
    read(json, path) {
      const given = field.read(json, path);
      if (holds(given)) return given;
      throw wrongValue(path, expected, given);
    },
  };
}

/** A field for which a server accepts more than our clients send. */
export function tolerant<T, Given>(
  field: Field<T, "required", Given>,
  accepted: Pick<Field<T>, "read">,
): Field<T, "required", Given> {
  return { ...field, read: (json, path) => accepted.read(json, path) };
}

/** A number in a query, where everything is text. */
export function inQuery(field: Field<number>): Field<number> {
  return {
    ...field,
    read: (json, path) =>
      field.read(typeof json === "string" && json.trim() !== "" ? Number(json) : json, path),
  };
}

/** A union distinguished by `type`; `other` finds the field for what has none of the known types. */
export function byType<T>(
  known: Readonly<Record<string, Field<T>>>,
  other: (given: Readonly<Record<string, unknown>>, path: string) => Field<T>,
): Field<T> {
  const pick = (given: unknown, path: string): Field<T> => {
    checkObject(given, path);
    const type = String(given["type"]);
    return Object.hasOwn(known, type) ? known[type]! : other(given, path);
  };
  return {
    presence: "required",
    check: (given, path) => pick(given, path).check(given, path),
    read: (json, path) => pick(json, path).read(json, path),
    write: (given, path) => pick(given, path).write(given, path),
  };
}

/** How a message treats names that are not its own, and a rule for its fields taken together. */
export interface MessageSettings<S extends Shape> {
  /** Unknown names that come over the wire are an error too. */
  readonly closed?: boolean | undefined;
  /** A caller may give an object with more than these fields: only misspelt names are an error. */
  readonly open?: boolean | undefined;
  readonly rule?: ((message: FilledMessage<S>, path: string) => void) | undefined;
}

/** A message with these fields. Unknown names are an error if a caller gave them, and ignored if they came over the wire. */
export function message<S extends Shape>(shape: S, options: MessageSettings<S> = {}): MessageField<S> {
  const entries = Object.entries(shape).map(([name, field]) => {
    return { name, wireName: camelToSnake(name), field };
  });
  const names = {
    check: new Set(Object.keys(shape)),
    read: options.closed === true ? new Set(entries.map((entry) => entry.wireName)) : undefined,
  };
  const fill = (given: unknown, path: string, side: "check" | "read"): FilledMessage<S> => {
    checkObject(given, path || "body");
    for (const key of Object.keys(given)) {
      if (names[side]?.has(key) !== false) continue;
      if (options.open !== true || closestName(key, names.check) !== undefined)
        throw unknownField(key, names.check, path);
    }
    const filled: Record<string, unknown> = {};
    for (const { name, wireName, field } of entries) {
      const item = given[side === "check" ? name : wireName];
      let found: unknown;
      if (field.presence === "required" || !(item === undefined || (item === null && side === "read"))) {
        const fieldPath = subfield(path, name);
        if (item === undefined && side === "read")
          throw new ValidationError(fieldPath, `${fieldPath} is missing`);
        found = field[side](item, fieldPath);
      }
      if (found === undefined) found = field.fallback;
      if (found !== undefined) filled[name] = found;
    }
    options.rule?.(filled as FilledMessage<S>, path);
    return filled as FilledMessage<S>;
  };
  return {
    presence: "required",
    shape,
    check: (given, path) => fill(given, path, "check"),
    read: (json, path) => fill(json, path, "read"),
    write(given, path = "") {
      const json: Record<string, unknown> = {};
      for (const { name, wireName, field } of entries) {
        const item = (given as Readonly<Record<string, unknown>>)[name];
        const written = item === undefined ? undefined : field.write(item, subfield(path, name));
        if (written !== undefined) setOwn(json, wireName, written);
      }
      return json;
    },
  };
}
