import { type Command, Help, type HelpConfiguration } from "commander";
import { GLOBAL_HEADING } from "./global-options.js";
import { wrapCommand, wrapText } from "./output/text.js";

const INDENT = 2;
/** If less width than this is left beside an option's name, its description goes below it. */
const MIN_DESCRIPTION_WIDTH = 34;

/** Layout of help texts: lines break between words at any width, and global options come last. */
export const HELP_LAYOUT: HelpConfiguration = {
  subcommandTerm: (command) => command.name(),
  minWidthToWrap: 1,
  boxWrap: wrapText,
  formatItem(term, termWidth, description, helper) {
    const helpWidth = helper.helpWidth ?? 80;
    const isBeside = helpWidth - INDENT - termWidth - 2 >= MIN_DESCRIPTION_WIDTH;
    const start = isBeside ? INDENT + termWidth + 2 : 3 * INDENT;
    const margin = " ".repeat(start);
    const text = wrapText(description, helpWidth - start).replaceAll("\n", `\n${margin}`);
    const head = `${" ".repeat(INDENT)}${term}`;
    return isBeside ? `${head.padEnd(start)}${text}`.trimEnd() : `${head}\n${margin}${text}`;
  },
  formatHelp(command, helper) {
    const [usage, ...sections] = Help.prototype.formatHelp
      .call(this, command, helper)
      .trimEnd()
      .split("\n\n");
    const isGlobal = (section: string) => section.startsWith(GLOBAL_HEADING);
    const ordered = sections.toSorted((a, b) => Number(isGlobal(a)) - Number(isGlobal(b)));
    return `${[wrapText(usage!, helper.helpWidth ?? 80), ...ordered].join("\n\n")}\n`;
  },
};

/** Adds what stands below the options: a note and example lines. */
export function addHelpEnd(command: Command, end: { note?: string; examples: readonly string[] }): void {
  const { note, examples } = end;
  command.addHelpText("after", () => {
    const width = command.configureOutput().getOutHelpWidth?.() ?? 80;
    const margin = " ".repeat(INDENT);
    const heading = `Example${examples.length > 1 ? "s" : ""}:`;
    const lines = examples.map((example) => wrapCommand(example, width - INDENT));
    return [
      ...(note === undefined ? [] : ["", wrapText(note, width)]),
      "",
      [heading, ...lines].join("\n").replaceAll("\n", `\n${margin}`),
    ].join("\n");
  });
}
