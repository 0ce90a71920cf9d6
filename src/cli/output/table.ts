import { type Column, isMissing, isRightAligned, shownCell } from "./columns.js";
import type { Styles } from "./styles.js";
import { cutText, displayWidth, padText, printable } from "./text.js";

const GAP = "  ";
const INDENT = "  ";

export interface TableOptions {
  /** Columns of the terminal; Infinity where there is none. */
  readonly width: number;
  readonly nowMs: number;
  readonly styles: Styles;
}

interface TextColumn {
  readonly header: string;
  readonly cells: readonly string[];
  readonly align: "left" | "right";
  readonly cutAt: "middle" | "end";
  readonly importance: number;
  readonly fullWidth: number;
  readonly leastWidth: number;
  readonly takesOwnLine: boolean;
}

/** Things below each other, one line each; two where the terminal is too narrow and a column takes a line of its own. */
export function renderTable<T>(
  items: readonly T[],
  columns: readonly Column<T>[],
  options: TableOptions,
): string[] {
  const used = columns.filter(
    ({ isOptional, value }) => !isOptional || !items.every((item) => isMissing(value(item))),
  );
  const texts = used.map((column): TextColumn => {
    const cells = items.map((item) => printable(shownCell(column, item, options.nowMs)));
    const fullWidth = Math.max(displayWidth(column.header), ...cells.map(displayWidth));
    return {
      header: column.header,
      cells,
      align: isRightAligned(column as Column<never>) ? "right" : "left",
      cutAt: column.cutAt ?? "end",
      importance: column.importance ?? 0,
      fullWidth,
      leastWidth: Math.min(column.leastWidth ?? fullWidth, fullWidth),
      takesOwnLine: column.takesOwnLine ?? false,
    };
  });
  const lines = lineWriter(texts, options.width);
  return [
    ...lines(({ header }) => header.toUpperCase()).map(options.styles.bold),
    ...items.flatMap((_, row) => lines(({ cells }) => cells[row]!)),
  ];
}

/** Writes the lines of one thing, of which `text` says what stands in each column. */
function lineWriter(
  columns: readonly TextColumn[],
  terminalWidth: number,
): (text: (column: TextColumn) => string) => string[] {
  const above = columns.find(({ takesOwnLine }) => takesOwnLine);
  if (above !== undefined && columns.length > 1 && widthOf(columns) > terminalWidth) {
    const below = lineWriter(
      columns.filter((column) => column !== above),
      terminalWidth - INDENT.length,
    );
    return (text) => [text(above), ...below(text).map((line) => `${INDENT}${line}`)];
  }
  const fitting = fitColumns(columns, terminalWidth);
  return (text) => [
    fitting
      .map(({ column, width }) => padText(cutText(text(column), width, column.cutAt), width, column.align))
      .join(GAP)
      .trimEnd(),
  ];
}

/** One thing, one property on each line. */
export function renderItem<T>(item: T, columns: readonly Column<T>[], options: TableOptions): string[] {
  const headerWidth = Math.max(...columns.map(({ header }) => displayWidth(header)));
  return columns.flatMap((column) => {
    const value = column.value(item);
    const lines =
      typeof value === "object" && !isMissing(value) ? value : [shownCell(column, item, options.nowMs)];
    return lines.map((line, index) => {
      const header = padText(index === 0 ? column.header : "", headerWidth, "left");
      return `${options.styles.bold(header)}${GAP}${printable(line)}`;
    });
  });
}

interface Fitting {
  readonly column: TextColumn;
  readonly width: number;
}

function widthOf(columns: readonly TextColumn[]): number {
  return columns.reduce((sum, column) => sum + column.fullWidth, GAP.length * (columns.length - 1));
}

/** The columns there is room for, in their order: the least important ones give way first, and entirely if need be. */
function fitColumns(columns: readonly TextColumn[], terminalWidth: number): Fitting[] {
  const excess = Math.max(0, widthOf(columns) - terminalWidth);
  const least = columns.reduce((a, b) => (b.importance <= a.importance ? b : a));
  const leastWidth = columns.length === 1 ? 1 : least.leastWidth;
  if (least.fullWidth - excess < leastWidth && columns.length > 1) {
    return fitColumns(
      columns.filter((column) => column !== least),
      terminalWidth,
    );
  }
  return columns.map((column) => ({
    column,
    width: column === least ? Math.max(leastWidth, column.fullWidth - excess) : column.fullWidth,
  }));
}
