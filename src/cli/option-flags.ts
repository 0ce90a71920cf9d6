import { type Command, InvalidArgumentError, Option } from "commander";
import { messageOf } from "../errors.js";
import { boolean, type OptionField, type Shape } from "../wire/index.js";

/** An option of a call that the command line can set. */
interface Flag {
  readonly name: string;
  /** Path of its value in the options of the call: `["save", "everySteps"]`. */
  readonly path: readonly string[];
  readonly field: OptionField<unknown>;
}

/** Adds a flag for each option of a table that has one, in the table's order. */
export function addFlags(command: Command, fields: Shape): Command {
  for (const flag of flagsOf(fields)) command.addOption(commandOption(flag));
  return command;
}

/** Adds the flag of one option, for a command that uses no other option of its table. */
export function flagOf(key: string, field: OptionField<unknown>): Option {
  return commandOption({ name: kebabCase(key), path: [key], field });
}

/** Flag names by option. */
export function flagNames(fields: Shape): ReadonlyMap<string, string> {
  return new Map(flagsOf(fields).map(({ name, path }) => [path[0]!, name]));
}

/** The options that were set on the command line, as the call takes them. */
export function optionsFromFlags(fields: Shape, command: object): Record<string, unknown> {
  const options: Record<string, unknown> = {};
  for (const { name, path, field } of flagsOf(fields)) {
    const value = (command as Readonly<Record<string, unknown>>)[
      commandOption({ name, path, field }).attributeName()
    ];
    // commander gives `true` for a `--no-...` flag that is absent.
    if (value === undefined || (name.startsWith("no-") && value === true)) continue;
    const [last, ...outer] = path.toReversed();
    let target = options;
    for (const part of outer.toReversed()) {
      // `--best` alone is true, and with `--patience` an object.
      if (typeof target[part] !== "object") target[part] = {};
      target = target[part] as Record<string, unknown>;
    }
    target[last!] = value;
  }
  return options;
}

function flagsOf(fields: Shape, path: readonly string[] = []): Flag[] {
  return Object.entries(fields).flatMap(([key, field]) => {
    const own = [...path, key];
    const { notes } = field as Partial<OptionField<unknown>>;
    const inner = "shape" in field ? flagsOf(field.shape as Shape, own) : [];
    if (notes?.flag === undefined) return inner;
    const name = notes.flag === true ? kebabCase(key) : notes.flag;
    return [{ name, path: own, field: field as OptionField<unknown> }, ...inner];
  });
}

/** Help of an option with its default, for flags that parse their value themselves. */
export function helpOf({ notes, fallback }: OptionField<unknown>): string {
  const standard = notes.otherwise ?? (fallback === undefined ? undefined : String(fallback));
  return standard === undefined ? notes.help : `${notes.help} (default: ${standard})`;
}

function commandOption({ name, field }: Flag): Option {
  const { notes, choices, fromText, expected } = field;
  if (expected === boolean.expected) {
    return new Option(`--${name}`, name.startsWith("no-") ? `do not ${notes.help}` : notes.help);
  }
  const value = fromText ? "number" : choices ? "name" : (notes.value ?? "text");
  const option = new Option(`--${name} <${value}>`, helpOf(field));
  if (choices !== undefined) return option.choices([...choices]);
  return option.argParser((text) => {
    try {
      return field.check(fromText ? fromText(text) : text, name);
    } catch (error) {
      throw new InvalidArgumentError(expected ? `It must be ${expected}.` : messageOf(error));
    }
  });
}

function kebabCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
