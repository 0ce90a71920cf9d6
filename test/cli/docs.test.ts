import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { COMMANDS } from "../../src/cli/commands/index.js";
import type { CommandContext } from "../../src/cli/context.js";
import { createCompleteProgram } from "../../src/cli/program.js";
import { run } from "./command.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const page = readFileSync(`${root}docs/cli.md`, "utf8");

/** Definitions alone: no command is run. */
const context = {} as CommandContext;

describe("docs/cli.md", () => {
  it("is what the definitions say; if not: npm run generate:cli-docs", async () => {
    const { stdout } = await promisify(execFile)(process.execPath, ["scripts/cli-docs.mjs", "--print"], {
      cwd: root,
    });
    expect(page).toBe(stdout);
  });

  it("has every option that --help shows", async () => {
    const { stdout } = await run(["checkpoint", "delete", "--help"]);
    const flags = [...stdout.matchAll(/^ {2}((?:-\w, )?--[^ ]+(?: <\w+>)?)/gm)].map((match) => match[1]!);
    expect(flags).toContain("--before <time>");
    expect(flags).toContain("-v, --verbose");
    const missing = flags.filter((flag) => flag !== "-h, --help" && !page.includes(`| \`${flag}\` |`));
    expect(missing).toEqual([]);
  });

  it("shows examples that are made of commands and options there are", async () => {
    const program = await createCompleteProgram(context);
    const examples = COMMANDS.flatMap((entry) => ("load" in entry ? [entry] : entry.commands)).flatMap(
      (entry) => entry.examples,
    );
    expect(examples.length).toBeGreaterThan(30);
    for (const example of examples) {
      const line = /\btinkerts ([^|><)]*)/.exec(example)?.[1] ?? "";
      const words = [...line.matchAll(/"[^"]*"|'[^']*'|\S+/g)].map(([word]) => word);
      let command = program;
      // A command with subcommands may have options of its own.
      while (command.commands.length > 0 && !words[0]?.startsWith("-")) {
        const name = words.shift();
        const child = command.commands.find((one) => one.name() === name);
        expect({ example, name, child }).toMatchObject({ child: expect.anything() });
        command = child!;
      }
      const { operands, unknown } = command.parseOptions(words);
      const least = command.registeredArguments.filter(({ required }) => required).length;
      const most = command.registeredArguments.some(({ variadic }) => variadic)
        ? Number.POSITIVE_INFINITY
        : command.registeredArguments.length;
      expect({ example, unknown }).toEqual({ example, unknown: [] });
      expect(operands.length, example).toBeGreaterThanOrEqual(least);
      expect(operands.length, example).toBeLessThanOrEqual(most);
    }
  });
});
