import { checkObject } from "./check-keys.js";
import {
  type Field,
  type FilledMessage,
  type MessageSettings,
  message,
  type Presence,
  type Shape,
} from "./fields.js";

/** Help text, flag and `config.json` name of an option. */
export interface OptionNotes {
  /** One line without the default: "peak learning rate". */
  readonly help: string;
  /** A default that is worked out, in words: "recommended for the model". */
  readonly otherwise?: string | undefined;
  /** Its name in a run's `config.json`, where it is kept as it is. */
  readonly config?: string | undefined;
  /** Stands in `config.json` for an option that is not set. Default: null. */
  readonly unset?: unknown;
  /** Its flag on the command line: `true` for its own name in kebab-case, or another name. */
  readonly flag?: true | string | undefined;
  /** The kind of text that its flag takes, for help and completion. Default: any text. */
  readonly value?: "file" | "folder" | undefined;
}

/** One option of a call: what it may hold, and what it is for. */
export type OptionField<T, P extends Presence = Presence> = Field<T, P> & { readonly notes: OptionNotes };

/** The rows of an option table for a documented interface: exactly its fields. */
export type OptionsOf<T> = {
  readonly [K in keyof Required<T>]: OptionField<Exclude<T[K], undefined>>;
};

/** The rows of an option table for a union of interfaces: exactly their names. */
export type OptionNamesOf<T> = {
  readonly [K in T extends unknown ? keyof T : never]: OptionField<unknown>;
};

/** Describes one option. */
export function option<T, P extends Presence>(
  field: Field<T, P>,
  help: string,
  notes: Omit<OptionNotes, "help"> = {},
): OptionField<T, P> {
  return { ...field, notes: { help, ...notes } };
}

/** Options under one name; where it is absent, each of them has its default. */
export function optionGroup<S extends Shape>(fields: S): Field<FilledMessage<S>, "defaulted"> & { shape: S } {
  const group = message(fields);
  const fallback = group.check({}, "");
  return { ...group, presence: "defaulted", fallback } as unknown as Field<FilledMessage<S>, "defaulted"> & {
    shape: S;
  };
}

/** An option of another table with a default of this call's own. */
export function defaulting<T>(field: OptionField<T>, fallback: NoInfer<T>): OptionField<T, "defaulted"> {
  return { ...field, presence: "defaulted", fallback, notes: { ...field.notes, otherwise: undefined } };
}

/** All options of a call, described once: unknown names, wrong values and defaults follow from it. */
export interface OptionTable<S extends Shape> {
  readonly fields: S;
  /** The options with their defaults; what is wrong with them is an error that names the option. */
  check(given: unknown, caller: string): FilledMessage<S>;
}

/** Makes the table of a call; a rule looks at the options together. */
export function optionTable<S extends Shape>(
  fields: S,
  settings: MessageSettings<S>["rule"] | MessageSettings<S> = {},
): OptionTable<S> {
  const options = message(fields, typeof settings === "function" ? { rule: settings } : settings);
  return {
    fields,
    check(given, caller) {
      checkObject(given, `the options of ${caller}`);
      return options.check(given, "");
    },
  };
}

/** Settings as a run's `config.json` has them: the options that are kept there, under the names of their table. */
export function keptOptions(fields: Shape, settings: object | undefined): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(fields)) {
    const value = (settings as Readonly<Record<string, unknown>> | undefined)?.[name];
    const { notes } = field as Partial<OptionField<unknown>>;
    if (notes?.config !== undefined) kept[notes.config] = value ?? notes.unset ?? null;
    if ("shape" in field) Object.assign(kept, keptOptions(field.shape as Shape, value as object | undefined));
  }
  return kept;
}
