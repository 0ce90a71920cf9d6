import * as f from "../../wire/fields/index.js";
import type { Source } from "../data/index.js";
import { RUN_OPTIONS, type RunOptions } from "../runs/options.js";

/** The options of training on rows, whatever the rows are. */
export interface RowsOptions<Row> extends RunOptions {
  /** Rows to train on. */
  readonly data: Source<Row>;
  /** Times that each row is trained on. Default: 1. */
  readonly epochs?: number | undefined;
  /** Ends the run after this many steps. */
  readonly maxSteps?: number | undefined;
  /** Rows in a step. Default: from 4 to 128, so that an epoch has at least 20 steps. */
  readonly batchSize?: number | undefined;
  /** Tokens of an example; longer ones lose their end. Default: what the server says the model can read. */
  readonly maxLength?: number | undefined;
  /** Rows of `data` that are held out for evaluation: a number, or a fraction below 1. Default: a tenth, at most 100; none of fewer than 20. */
  readonly testSize?: number | undefined;
  /** Other rows for evaluation; none of `data` are held out then. */
  readonly testData?: Source<Row> | undefined;
  /** Leaves out rows that cannot be read or written in the model's format, and says how many. Default: they are an error. */
  readonly skipBadRows?: boolean | undefined;
}

/** Something that rows can be read from; `rows` says how it is made. */
export function sourceOption<Row>(rows: string): f.Field<Source<Row>> {
  return f.having<Source<Row>>(rows, "open");
}

/** The table of training on rows of one kind; `rows` says how their source is made. */
export function rowsOptions<Row>(rows: string) {
  return {
    ...RUN_OPTIONS,
    schedule: f.defaulting(RUN_OPTIONS.schedule, "linear"),
    data: f.option(sourceOption<Row>(rows), "rows to train on"),
    epochs: f.option(f.withDefault(f.positiveInteger, 1), "times each row is trained on", {
      flag: true,
      config: "num_epochs",
    }),
    batchSize: f.option(f.optional(f.positiveInteger), "rows in a step", {
      otherwise: "4 to 128, by the number of rows",
      flag: true,
      config: "batch_size",
    }),
    maxSteps: f.option(f.optional(f.positiveInteger), "stop after this many steps", { flag: true }),
    maxLength: f.option(f.optional(f.twoOrMore), "cut examples longer than this many tokens", {
      otherwise: "what the model can read",
      flag: true,
      config: "max_length",
    }),
    testSize: f.option(f.optional(f.nonNegative), "rows held out for evaluation, or a fraction of all rows", {
      otherwise: "a tenth, at most 100; none of fewer than 20 rows",
      flag: true,
    }),
    testData: f.option(f.optional(sourceOption<Row>(rows)), "other rows for evaluation"),
    skipBadRows: f.option(f.withDefault(f.boolean, false), "leave out rows that cannot be trained on", {
      flag: true,
    }),
  } satisfies f.OptionsOf<RowsOptions<Row>>;
}

/** The options of training on rows, checked, with their defaults. */
export type FilledRowsOptions<Row> = f.FilledMessage<ReturnType<typeof rowsOptions<Row>>>;
