import type { Command } from "commander";
import { describe, expect, it } from "vitest";
import type { CommandContext } from "../../src/cli/context.js";
import { wrapCommand, wrapText } from "../../src/cli/output/text.js";
import { createCompleteProgram } from "../../src/cli/program.js";
import { startCliServer } from "./server.js";
import { noTerminal, openTerminal } from "./terminal.js";

const program = await createCompleteProgram({} as CommandContext);
const withChildren = (command: Command): Command[] => [command, ...command.commands.flatMap(withChildren)];

function helpOf(command: Command, width: number): string {
  let help = "";
  command.configureOutput({ getOutHelpWidth: () => width, writeOut: (text) => (help += text) }).outputHelp();
  return help;
}

/** What a terminal would break in the middle of a word, though there is a space to break at. */
const tooWide = (text: string, width: number) =>
  text.split(/\r?\n/).filter((line) => line.length > width && line.trim().replace(/ \\$/, "").includes(" "));

describe("help", () => {
  it.each([40, 60, 80, 120])("of every command breaks its lines between words at %i columns", (width) => {
    for (const command of withChildren(program)) {
      expect(tooWide(helpOf(command, width), width), command.name()).toEqual([]);
    }
  });

  it("says the same at every width", () => {
    const words = (text: string) => text.replaceAll(/\\\n|\s+/g, " ").replaceAll(/ +/g, " ");
    for (const command of withChildren(program)) {
      expect(words(helpOf(command, 40))).toBe(words(helpOf(command, 200)));
    }
  });

  it("puts descriptions on the next line where they do not fit beside the name", () => {
    const models = program.commands.find((command) => command.name() === "models")!;
    expect(helpOf(models, 80)).toMatch(/^ {2}part +only models whose name contains this/m);
    expect(helpOf(models, 40)).toMatch(/^ {2}part\n {6}only models whose name contains$/m);
  });
});

describe("text", () => {
  it("is wrapped between words, with the indent it began with", () => {
    expect(wrapText("  one two  three\n\nfour", 9)).toBe("  one two\n  three\n\nfour");
    expect(wrapText("a wordthatislong b", 6)).toBe("a\nwordthatislong\nb");
    expect(wrapText("/help   this list", 17)).toBe("/help   this list");
    expect(wrapText("any words", Number.POSITIVE_INFINITY)).toBe("any words");
    expect(wrapText("模型 模型 模型", 9)).toBe("模型 模型\n模型");
  });

  it("of a command can be copied when it is wrapped", () => {
    expect(wrapCommand("a b", 80)).toBe("a b");
    expect(wrapCommand("tool --say 'two words' --more", 28)).toBe("tool --say 'two words' \\\n  --more");
    expect(wrapCommand("tool --say 'two words' --more", 24)).toBe(
      "tool \\\n  --say 'two words' \\\n  --more",
    );
    expect(wrapCommand("tool --say 'two words' --more", 16)).toBe(
      "tool --say \\\n  'two words' \\\n  --more",
    );
  });
});

describe.skipIf(noTerminal)("what a person reads at a terminal", () => {
  it.each([40, 60, 80])("breaks between words at %i columns", async (columns) => {
    await using server = await startCliServer();
    const shown = async (args: readonly string[], env: Record<string, string> = {}) => {
      const terminal = openTerminal(args, { columns, env: { ...server.env, ...env } });
      await terminal.ended;
      return terminal.text();
    };
    const texts = await Promise.all([
      shown(["run", "info", "nothing"]),
      shown(["models"], { TINKER_BASE_URL: "" }),
      shown(["run", "list", "--format", "xml"]),
      shown(["sample"]),
      shown(["auth", "login", "--help"]),
    ]);
    for (const text of texts) {
      expect(text).toMatch(/error:|Usage:/);
      expect(tooWide(text, columns)).toEqual([]);
    }
  });
});
