import { type Column, cellOf, headerOf, isMissing, isRightAligned, shownCell } from "./columns.js";
import type { Styles } from "./styles.js";
import { cutText, displayWidth, padText, printable } from "./text.js";

const GAP = "  ";
const INDENT = "  ";

/** Where a table is shown. */
export interface TableOptions {
  /** Width of the terminal; Infinity if there is none. */
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
  /** Headers of the columns that did not fit. */
  readonly leftOut: readonly string[];
}

/**
 * Lays out items below each other, one line each; two lines if the terminal is too narrow and a column takes its own
 * line.
 */
export function renderTable<T>(
  items: readonly T[],
  columns: readonly Column<T>[],
  options: TableOptions,
): Table {
  const used = columns.filter(
    (column) => !column.isOptional || !items.every((item) => isMissing(cellOf(column, item))),
  );
  const texts = used.map((column): TextColumn => {
    const cells = items.map((item) => printable(shownCell(column, item, options.nowMs)));
    const header = headerOf(column);
    const fullWidth = Math.max(displayWidth(header), ...cells.map(displayWidth));
    return {
      header,
      cells,
      align: isRightAligned(column) ? "right" : "left",
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

/** Decides which columns share a line, and which one moves above if that line is too long. */
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

/** Lays out one item, one property per line. */
export function renderItem<T>(item: T, columns: readonly Column<T>[], options: TableOptions): string[] {
  const headerWidth = Math.max(...columns.map((column) => displayWidth(headerOf(column))));
  return columns.flatMap((column) => {
    const value = cellOf(column, item);
    const lines =
      typeof value === "object" && !isMissing(value) ? value : [shownCell(column, item, options.nowMs)];
    return lines.map((line, index) => {
      const header = padText(index === 0 ? headerOf(column) : "", headerWidth, "left");
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

/** The columns that fit, in order: columns of low importance are cut first, then left out. */
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
