import type { Command } from "commander";
import type { Source } from "../../cookbook/data/index.js";
import { gathered } from "../option-values.js";
import { count, notNegative, positive } from "./run-options.js";

/** The options of training on rows, whatever the rows are. */
export interface RowsCommandOptions {
  readonly epochs: number;
  readonly maxSteps?: number;
  readonly batchSize?: number;
  readonly maxLength?: number;
  readonly testSize?: number;
  readonly testFile?: readonly string[];
  readonly best?: true;
  readonly patience?: number;
  readonly price?: number;
}

/** Adds them to a command. */
export function addRowsOptions(command: Command): Command {
  return command
    .option("--epochs <number>", "how often each row is learnt", count(), 1)
    .option(
      "--batch-size <number>",
      "rows in a step (default: from 4 to 128, by the number of rows)",
      count(),
    )
    .option("--max-steps <number>", "no more steps than these", count())
    .option("--max-length <number>", "cut longer examples (default: what the model can read)", count(2))
    .option(
      "--test-size <number>",
      "rows held out, or a fraction (default: a tenth, at most 100)",
      notNegative,
    )
    .option("--test-file <file>", "measure with these rows instead; may be repeated", gathered(String))
    .option("--best", "keep the weights that did best on the held-out rows, too")
    .option(
      "--patience <number>",
      "stop after so many evaluations without a better one; implies --best",
      count(),
    )
    .option("--price <amount>", "of a million tokens, to say what the run will cost", positive);
}

/** What they say to a training loop; `read` opens files of rows. */
export function rowsOptions<Row>(
  files: readonly string[],
  options: RowsCommandOptions,
  read: (files: readonly string[]) => Source<Row>,
) {
  const { epochs, maxSteps, batchSize, maxLength, testSize, testFile, best, patience } = options;
  return {
    data: read(files),
    testData: testFile && read(testFile),
    ...{ epochs, maxSteps, batchSize, maxLength, testSize },
    best: patience === undefined ? best : { patience },
    pricePerMillionTokens: options.price,
  };
}
