import { type Column, isMissing, isRightAligned, shownCell } from "./columns.js";
import type { Styles } from "./styles.js";
import { cutText, displayWidth, padText, printable } from "./text.js";

const GAP = "  ";

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
}

/** Things below each other, one line each. */
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
    };
  });
  const fitting = fitColumns(texts, options.width);
  const line = (text: (column: TextColumn) => string) =>
    fitting
      .map(({ column, width }) => padText(cutText(text(column), width, column.cutAt), width, column.align))
      .join(GAP)
      .trimEnd();
  return [
    options.styles.bold(line(({ header }) => header.toUpperCase())),
    ...items.map((_, row) => line(({ cells }) => cells[row]!)),
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
  width: number;
}

/** The columns there is room for, in their order, the least important ones cut. */
function fitColumns(columns: readonly TextColumn[], terminalWidth: number): Fitting[] {
  const gaps = GAP.length * (columns.length - 1);
  const least = columns.reduce((sum, { leastWidth }) => sum + leastWidth, gaps);
  const leastImportantFirst = columns.toSorted((a, b) => a.importance - b.importance);
  if (least > terminalWidth && columns.length > 1) {
    return fitColumns(
      columns.filter((column) => column !== leastImportantFirst[0]),
      terminalWidth,
    );
  }
  let excess = columns.reduce((sum, { fullWidth }) => sum + fullWidth, gaps) - terminalWidth;
  const widths = new Map(columns.map((column) => [column, column.fullWidth]));
  for (const column of leastImportantFirst) {
    if (excess <= 0) break;
    const isLast = columns.length === 1;
    const cut = Math.min(excess, column.fullWidth - (isLast ? 1 : column.leastWidth));
    widths.set(column, column.fullWidth - cut);
    excess -= cut;
  }
  return columns.map((column) => ({ column, width: widths.get(column)! }));
}
