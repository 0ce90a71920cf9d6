import type { CommandContext } from "../context.js";
import type { Cell, Column } from "./columns.js";
import { renderCsv } from "./csv.js";
import { stylesFor } from "./styles.js";
import { renderItem, renderTable, type TableOptions } from "./table.js";
import { printableJson } from "./text.js";

/** Options of a printed list. */
export interface ListView<T> {
  readonly columns: readonly Column<T>[];
  /** Rows for CSV, if different from the table's. */
  readonly csvColumns?: readonly Column<T>[];
  /** Printed instead of an empty table: "no runs". */
  readonly empty: string;
  /** Value printed as JSON instead of the items. */
  readonly json?: unknown;
}

/** Prints a list as --format says: a table with one line per item, or JSON, or CSV. */
export function printList<T>(context: CommandContext, items: readonly T[], view: ListView<T>): void {
  const { stdout } = context;
  const { format } = context.globals();
  switch (format) {
    case "json":
      printJson(context, view.json ?? items);
      return;
    case "csv":
      stdout.write(renderCsv(items, view.csvColumns ?? view.columns));
      return;
    case "table":
      if (items.length === 0) context.notify(view.empty);
      else printTable(context, items, view.columns);
      return;
    default:
      format satisfies never;
  }
}

function printTable<T>(context: CommandContext, items: readonly T[], columns: readonly Column<T>[]): void {
  const { lines, leftOut } = renderTable(items, columns, tableOptions(context));
  context.stdout.write(joined(lines));
  if (leftOut.length > 0) {
    context.notify(`no room for ${leftOut.join(", ")}: widen the terminal, or use --json or --format csv`);
  }
}

/** Prints one item as --format says: a table with one line per property, or JSON. */
export function printItem<T>(context: CommandContext, item: T, columns: readonly Column<T>[]): void {
  const { stdout } = context;
  const { format } = context.globals();
  switch (format) {
    case "json":
      printJson(context, item);
      return;
    case "csv":
      stdout.write(renderCsv([item], columns));
      return;
    case "table":
      stdout.write(joined(renderItem(item, columns, tableOptions(context))));
      return;
    default:
      format satisfies never;
  }
}

/** Reports what was done: a sentence for people, facts for programs. */
export function printDone<T extends object>(context: CommandContext, sentence: string, facts: T): void {
  if (context.globals().format === "table") context.notify(sentence);
  else {
    const names = Object.keys(facts) as (keyof T & string)[];
    const columns = names.map((name) => ({ name, value: () => facts[name] as Cell }));
    printItem(context, facts, columns);
  }
}

/** Prints a value as indented JSON, whatever --format says. */
export function printJson({ stdout }: CommandContext, value: unknown): void {
  stdout.write(`${printableJson(value, 2)}\n`);
}

function tableOptions(context: CommandContext): TableOptions {
  const { stdout } = context;
  return {
    width: stdout.isTTY ? stdout.columns || 80 : Number.POSITIVE_INFINITY,
    nowMs: Date.now(),
    styles: stylesFor(context, stdout),
  };
}

const joined = (lines: readonly string[]) => lines.map((line) => `${line}\n`).join("");
