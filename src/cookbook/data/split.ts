import { ValidationError } from "../../errors.js";
import { permutation } from "./permutation.js";
import { checkWhole, type Rows, selectRows } from "./rows.js";

/** How many rows are held out, and which. */
export interface SplitOptions {
  /** A number of rows, or a fraction below 1. Default: `defaultTestSize`. */
  readonly testSize?: number | undefined;
  /** The same seed always holds out the same rows. Default: 0. */
  readonly seed?: number | undefined;
}

/** Rows to learn from, and others to measure with. */
export interface Split<T> {
  readonly train: Rows<T>;
  readonly test: Rows<T>;
}

const MAX_DEFAULT_TEST_ROWS = 100;
const LEAST_ROWS_TO_SPLIT = 20;

/**
 * A tenth of the rows, since a run needs something to be measured with: at most 100, which tell as much as more would
 * and keep evaluation cheap, and none of less than 20 rows, where each one is worth more as a lesson.
 */
export function defaultTestSize(rowCount: number): number {
  return rowCount < LEAST_ROWS_TO_SPLIT ? 0 : Math.min(MAX_DEFAULT_TEST_ROWS, Math.floor(rowCount / 10));
}

/** Holds rows out, at random and the same ones each time. Both parts keep the order of the rows. */
export function split<T>(rows: Rows<T>, { testSize, seed = 0 }: SplitOptions = {}): Split<T> {
  checkWhole("seed", seed, 0);
  const size = testRows(rows.length, testSize);
  const order = permutation(rows.length, seed, SPLIT_ROUND);
  return {
    test: selectRows(rows, order.slice(0, size).sort()),
    train: selectRows(rows, order.slice(size).sort()),
  };
}

/** Not the order of any epoch. */
const SPLIT_ROUND = 0xffffffff;

function testRows(rowCount: number, testSize: number | undefined): number {
  if (testSize === undefined) return defaultTestSize(rowCount);
  const isFraction = testSize > 0 && testSize < 1;
  if (!isFraction && (!Number.isInteger(testSize) || testSize < 0)) {
    throw new ValidationError(
      "testSize",
      `testSize must be a number of rows or a fraction below 1, got ${String(testSize)}`,
    );
  }
  const size = isFraction ? Math.round(testSize * rowCount) : testSize;
  if (size > 0 && size >= rowCount) {
    throw new ValidationError(
      "testSize",
      `testSize must leave rows to learn from: it is ${testSize}, and there are ${rowCount} rows`,
    );
  }
  return size;
}
