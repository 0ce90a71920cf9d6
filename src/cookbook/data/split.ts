import * as f from "../../wire/fields/index.js";
import { permutation } from "./permutation.js";
import { type Rows, selectRows } from "./rows.js";

const MAX_DEFAULT_TEST_ROWS = 100;

/** Which rows are held out, and how many. */
export interface SplitOptions {
  /** Number of rows, or a fraction below 1. Default: a tenth of the rows, at most 100; none of fewer than 20. */
  readonly testSize?: number | undefined;
  /** Seed that decides which rows are held out. Default: 0. */
  readonly seed?: number | undefined;
}

/** The option table of `split`. */
export const SPLIT_OPTIONS = f.optionTable({
  testSize: f.option(f.optional(f.nonNegative), "rows held out, or a fraction of all rows", {
    otherwise: `a tenth, at most ${MAX_DEFAULT_TEST_ROWS}`,
  }),
  seed: f.option(f.withDefault(f.nonNegativeInteger, 0), "seed that decides which rows are held out"),
} satisfies f.OptionsOf<SplitOptions>);

/** Rows for training and held-out rows. */
export interface Split<T> {
  readonly train: Rows<T>;
  readonly test: Rows<T>;
}

/** With fewer rows than this, none is held out by default. */
export const LEAST_ROWS_TO_SPLIT = 20;

/**
 * A tenth of the rows, at most 100, which measure as well as more would and keep evaluation cheap; none of fewer than
 * 20 rows, where each row is worth more for training.
 */
export function defaultTestSize(rowCount: number): number {
  return rowCount < LEAST_ROWS_TO_SPLIT ? 0 : Math.min(MAX_DEFAULT_TEST_ROWS, Math.floor(rowCount / 10));
}

/** Holds out random rows, the same ones each time. Both parts keep the order of the rows. */
export function split<T>(rows: Rows<T>, options: SplitOptions = {}): Split<T> {
  const { test, train } = splitPositions(rows.length, options);
  return { test: selectRows(rows, test), train: selectRows(rows, train) };
}

/** Which of so many rows `split` holds out, and which are left. */
export function splitPositions(
  rowCount: number,
  options: SplitOptions = {},
): { readonly train: Uint32Array; readonly test: Uint32Array } {
  const { testSize, seed } = SPLIT_OPTIONS.check(options, "split");
  const size = testRowsOf(rowCount, testSize);
  const order = permutation(rowCount, seed, SPLIT_ROUND);
  return { test: order.slice(0, size).sort(), train: order.slice(size).sort() };
}

/** Differs from the seeds of the epochs' orders. */
const SPLIT_ROUND = 0xffffffff;

/** Number of rows held out by the option `testSize`. */
export function testRowsOf(rowCount: number, testSize: number | undefined): number {
  if (testSize === undefined) return defaultTestSize(rowCount);
  const isFraction = testSize > 0 && testSize < 1;
  if (!isFraction && (!Number.isInteger(testSize) || testSize < 0)) {
    throw f.wrongField("testSize", `must be a number of rows or a fraction below 1, got ${String(testSize)}`);
  }
  const size = isFraction ? Math.round(testSize * rowCount) : testSize;
  if (size > 0 && size >= rowCount) {
    throw f.wrongField(
      "testSize",
      `must leave rows to learn from: it is ${testSize}, and there are ${rowCount} rows`,
    );
  }
  return size;
}
