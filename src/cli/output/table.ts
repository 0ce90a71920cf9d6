import { type Column, isMissing, isRightAligned, shownCell } from "./columns.js";
import type { Styles } from "./styles.js";
import { cutText, displayWidth, padText, printable } from "./text.js";

const GAP = "  ";
const INDENT = "  ";

/** Where a table is shown. */
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

/** A table as lines of text. */
export interface Table {
  readonly lines: readonly string[];
  /** Headers of the columns there was no room for. */
  readonly leftOut: readonly string[];
}

/** Things below each other, one line each; two where the terminal is too narrow and a column takes a line of its own. */
export function renderTable<T>(
  items: readonly T[],
  columns: readonly Column<T>[],
  options: TableOptions,
): Table {
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
  const { above, below } = layOut(texts, options.width);
  const linesOf = (text: (column: TextColumn) => string) => {
    const line = below
      .map(({ column, width }) => padText(cutText(text(column), width, column.cutAt), width, column.align))
      .join(GAP)
      .trimEnd();
    return above === undefined ? [line] : [text(above), `${INDENT}${line}`];
  };
  const shown = new Set([above, ...below.map(({ column }) => column)]);
  return {
    lines: [
      ...linesOf(({ header }) => header.toUpperCase()).map(options.styles.bold),
      ...items.flatMap((_, row) => linesOf(({ cells }) => cells[row]!)),
    ],
    leftOut: texts.filter((column) => !shown.has(column)).map(({ header }) => header),
  };
}

/** Which columns stand in one line, and which one above the others where that line would be too long. */
function layOut(
  columns: readonly TextColumn[],
  terminalWidth: number,
): { above?: TextColumn; below: readonly Fitting[] } {
  const above = columns.find(({ takesOwnLine }) => takesOwnLine);
  if (above === undefined || columns.length === 1 || widthOf(columns) <= terminalWidth) {
    return { below: fitColumns(columns, terminalWidth) };
  }
  const others = columns.filter((column) => column !== above);
  return { above, below: fitColumns(others, terminalWidth - INDENT.length) };
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
