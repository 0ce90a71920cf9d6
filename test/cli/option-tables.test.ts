import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Command, type Option } from "commander";
import { describe, expect, it } from "vitest";
import type { CommandContext } from "../../src/cli/context.js";
import { addFlags, optionsFromFlags } from "../../src/cli/option-flags.js";
import { createCompleteProgram } from "../../src/cli/program.js";
import * as chat from "../../src/cookbook/chat/index.js";
import * as data from "../../src/cookbook/data/index.js";
import * as distillation from "../../src/cookbook/distillation/index.js";
import * as environments from "../../src/cookbook/environments/index.js";
import * as evaluation from "../../src/cookbook/evaluation/index.js";
import * as preferences from "../../src/cookbook/preferences/index.js";
import * as reinforcement from "../../src/cookbook/reinforcement/index.js";
import * as rollouts from "../../src/cookbook/rollouts/index.js";
import { ROLLOUT_OPTIONS, RUN_ROLLOUT_OPTIONS } from "../../src/cookbook/rollouts/settings.js";
import { RUN_OPTIONS } from "../../src/cookbook/runs/options.js";
import * as supervised from "../../src/cookbook/supervised/index.js";
import { ValidationError } from "../../src/errors.js";
import { GATEWAY_OPTIONS } from "../../src/gateway/options.js";
import { BACKEND_OPTIONS } from "../../src/local/options.js";
import { HTTP_CLIENT_FIELDS } from "../../src/transport/index.js";
import { message, type OptionField, type OptionTable, type Shape } from "../../src/wire/index.js";

const modules = [chat, data, distillation, environments, evaluation, preferences, reinforcement, rollouts];
const others = { ROLLOUT_OPTIONS, RUN_ROLLOUT_OPTIONS, RUN_OPTIONS, BACKEND_OPTIONS, GATEWAY_OPTIONS };
const exported = Object.assign(others, ...modules, supervised);
/** The tables of the cookbook, the backend and the gateway, by the names of their constants. */
const TABLES: Readonly<Record<string, Shape>> = Object.fromEntries(
  Object.entries(exported)
    .filter(([name]) => name.endsWith("_OPTIONS"))
    .map(([name, table]) => [name, (table as Partial<OptionTable<Shape>>).fields ?? (table as Shape)]),
);

const flagsOf = (fields: Shape): readonly Option[] => addFlags(new Command(), fields).options;
const optionsOf = (fields: Shape) => Object.entries(fields) as [string, OptionField<unknown>][];

describe.each(Object.entries(TABLES))("the options of %s", (_, fields) => {
  it("each say in one line what they are for, and show the default they have", () => {
    for (const [name, { notes, fallback }] of optionsOf(fields)) {
      expect(notes.help, name).toMatch(/^[^\s.].*[^.\s]$/);
      // A default that is worked out has words; one that is fixed has its value, never both.
      expect(notes.otherwise !== undefined && fallback !== undefined, name).toBe(false);
    }
    for (const [name, { notes, fallback, expected }] of optionsOf(fields)) {
      if (notes.flag === undefined || expected === "true or false") continue;
      const flag = flagsOf(fields).find((each) => each.attributeName() === name);
      const standard = notes.otherwise ?? (fallback === undefined ? undefined : String(fallback));
      if (flag !== undefined && standard !== undefined)
        expect(flag.description).toBe(`${notes.help} (default: ${standard})`);
    }
  });

  it("refuse a value of no use with their name, what they must be and what came", () => {
    for (const [name, field] of optionsOf(fields)) {
      if (field.expected === undefined || field.expected === "anything") continue;
      const wrong = Symbol(name);
      expect(() => field.check(wrong, name)).toThrow(
        `${name} must be ${field.expected}, got Symbol(${name})`,
      );
      expect(() => field.check(wrong, name)).toThrow(ValidationError);
    }
  });

  it("name the option that a misspelt one was meant to be", () => {
    const table = message(fields);
    for (const name of Object.keys(fields)) {
      // Shorter names are too near to others.
      if (name.length < 6) continue;
      const misspelt = `${name.slice(0, -2)}${name.at(-1)}${name.at(-2)}`;
      if (misspelt in fields || misspelt === name) continue;
      expect(() => table.check({ [misspelt]: 1 }, ""), misspelt).toThrow(
        new RegExp(`^unknown field ${misspelt}; did you mean \\w+\\?`),
      );
    }
  });

  it("come back from the command line under their own names", () => {
    for (const flag of flagsOf(fields)) {
      const placeholder = /<(\w+)>/.exec(flag.flags)?.[1];
      const value = flag.argChoices?.[0] ?? (placeholder === "number" ? "2" : placeholder);
      const command = addFlags(new Command().exitOverride(), fields);
      if (flag.long === "--loss") continue;
      command.parse([flag.long!, ...(value === undefined ? [] : [value])], { from: "user" });
      const options = optionsFromFlags(fields, command.opts());
      expect(Object.keys(options), flag.long!).toHaveLength(1);
      expect(fields).toHaveProperty(Object.keys(options)[0]!);
    }
  });
});

const source = fileURLToPath(new URL("../../src/", import.meta.url));
const sources = readdirSync(source, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
  .map((file) => readFileSync(source + file, "utf8"));
const UNITS = { "": 1, seconds: 1000, minutes: 60_000, MiB: 2 ** 20, GiB: 2 ** 30 };

/** Defaults that are numbers or names, as the comments of documented fields have them: all of a field's in one file. */
function documentedDefaults(text: string, field: string): (number | string)[] {
  const comments = text.matchAll(
    new RegExp(String.raw`/\*\*((?:(?!\*/)[\s\S])*)\*/\s+(?:readonly )?${field}\??:`, "g"),
  );
  return [...comments].flatMap(([, comment]) => {
    const said = /Default: (?:`([\w./]+)`|(-?\d+(?:\.\d+)?)(?: (seconds|minutes|MiB|GiB))?)(?=[.,;])/.exec(
      comment!,
    );
    if (said === null) return [];
    const [, name, count, unit = ""] = said;
    return [name ?? Number(count) * UNITS[unit as keyof typeof UNITS]];
  });
}

it("has the defaults that the documentation says", () => {
  let compared = 0;
  const wrong = Object.entries(TABLES).flatMap(([constant, fields]) => {
    const text = sources.find((each) => each.includes(`export const ${constant} =`));
    return optionsOf(fields).flatMap(([name, { fallback }]) => {
      const said = documentedDefaults(text ?? "", name);
      if (said.length === 0 || (typeof fallback !== "number" && typeof fallback !== "string")) return [];
      compared += 1;
      return said.includes(fallback) ? [] : [`${constant}.${name}: ${fallback}, documented ${said}`];
    });
  });
  expect(wrong).toEqual([]);
  expect(compared).toBeGreaterThan(30);
});

it("has a table for every options object of the cookbook", () => {
  expect(Object.keys(TABLES).length).toBeGreaterThan(30);
});

describe("the flags of all commands", () => {
  it("show the client's default time limit", async () => {
    const program = await createCompleteProgram({ notify: () => {} } as unknown as CommandContext);
    const timeout = program.options.find(({ long }) => long === "--timeout")!;
    expect(timeout.description).toContain(`(default: ${HTTP_CLIENT_FIELDS.timeout.fallback! / 1000}s)`);
  });

  const walk = (command: Command): Command[] => [command, ...command.commands.flatMap(walk)];

  it("say in one line what they are for, and show each default once", async () => {
    const program = await createCompleteProgram({ notify: () => {} } as unknown as CommandContext);
    const flags = walk(program).flatMap((command) => command.createHelp().visibleOptions(command));
    expect(flags.length).toBeGreaterThan(150);
    for (const { long, description, defaultValue } of flags) {
      expect(description, long).toMatch(/^[^\s.].*[^.\s]$/);
      const isShown = typeof defaultValue === "number" || typeof defaultValue === "string";
      if (isShown) expect(description, `${long} shows its default by itself`).not.toContain("default:");
    }
  });
});
