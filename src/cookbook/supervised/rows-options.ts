import { wrongValue } from "../../wire/index.js";
import type { Source } from "../data/index.js";
import { checkCount, checkPositive, checkRunOptions, type RunOptions } from "../runs/options.js";

/** What training on rows takes, whatever the rows are. */
export interface RowsOptions<Row> extends RunOptions {
  /** What to learn from. */
  readonly data: Source<Row>;
  /** Times that each row is learnt. Default: 1. */
  readonly epochs?: number | undefined;
  /** No more steps than these. */
  readonly maxSteps?: number | undefined;
  /** Rows in a step. Default: from 4 to 128, so that an epoch has at least 20 steps. */
  readonly batchSize?: number | undefined;
  /** Tokens of an example; longer ones lose their end. Default: what the server says the model can read. */
  readonly maxLength?: number | undefined;
  /** Rows of `data` to measure with instead of learning from: a number, or a fraction below 1. Default: a tenth, at most 100. */
  readonly testSize?: number | undefined;
  /** Other rows to measure with; none of `data` are held out then. */
  readonly testData?: Source<Row> | undefined;
  /** The price of training on a million tokens, to say beforehand what the run will cost. */
  readonly pricePerMillionTokens?: number | undefined;
}

const ROWS_KEYS = [
  ...(["data", "epochs", "maxSteps", "batchSize", "maxLength", "testSize", "testData"] as const),
  "pricePerMillionTokens",
] satisfies Exclude<keyof RowsOptions<never>, keyof RunOptions>[];

/** Refuses what no run could be made of, before anything is read or sent. */
export function checkRowsOptions<Row>(
  options: RowsOptions<Row>,
  { caller, ownKeys, rows }: { caller: string; ownKeys: readonly string[]; rows: string },
): void {
  checkRunOptions(options, caller, [...ROWS_KEYS, ...ownKeys]);
  checkSource(options.data, "data", rows);
  if (options.testData !== undefined) checkSource(options.testData, "testData", rows);
  for (const field of ["epochs", "maxSteps", "batchSize"] as const) checkCount(options, field, 1);
  checkCount(options, "maxLength", 2);
  checkPositive(options, "pricePerMillionTokens");
}

/** Refuses what no rows can be read from. */
export function checkSource(data: unknown, field: string, rows: string): void {
  if (typeof (data as Partial<Source<unknown>> | undefined)?.open !== "function")
    throw wrongValue(field, rows, data);
}
