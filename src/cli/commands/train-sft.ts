import { Option } from "commander";
import { conversations } from "../../cookbook/data/index.js";
import {
  planSupervised,
  type TrainSupervisedOptions,
  trainSupervised,
} from "../../cookbook/supervised/index.js";
import type { CommandContext, CommandModule } from "../context.js";
import { gathered, trainOnOption } from "../option-values.js";
import { runTrainingCommand } from "../train/run-command.js";
import {
  addRunOptions,
  count,
  modelOption,
  notNegative,
  positive,
  type RunCommandOptions,
  runOptions,
} from "../train/run-options.js";

interface TrainOptions extends RunCommandOptions {
  readonly epochs: number;
  readonly maxSteps?: number;
  readonly batchSize?: number;
  readonly trainOn: NonNullable<TrainSupervisedOptions["trainOn"]>;
  readonly reduction: NonNullable<TrainSupervisedOptions["reduction"]>;
  readonly maxLength?: number;
  readonly testSize?: number;
  readonly testFile?: readonly string[];
  readonly best?: true;
  readonly patience?: number;
  readonly price?: number;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<files...>", "conversations, one a line: .jsonl, .jsonl.gz or .parquet")
    .addOption(modelOption())
    .option("--epochs <number>", "how often each row is learnt", count(), 1)
    .option(
      "--batch-size <number>",
      "rows in a step (default: from 4 to 128, by the number of rows)",
      count(),
    )
    .option("--max-steps <number>", "no more steps than these", count())
    .option("--max-length <number>", "cut longer examples (default: what the model can read)", count(2))
    .addOption(trainOnOption())
    .addOption(
      new Option("--reduction <way>", "whether each example counts the same, or each token")
        .choices(["mean", "sum"])
        .default("mean"),
    )
    .option(
      "--test-size <number>",
      "rows held out, or a fraction (default: a tenth, at most 100)",
      notNegative,
    )
    .option(
      "--test-file <file>",
      "measure with these conversations instead; may be repeated",
      gathered(String),
    )
    .option("--best", "keep the weights that did best on the held-out rows, too")
    .option(
      "--patience <number>",
      "stop after so many evaluations without a better one; implies --best",
      count(),
    )
    .option("--price <amount>", "of a million tokens, to say what the run will cost", positive);
  addRunOptions(command, { schedule: "linear" }).action((files: readonly string[], options: TrainOptions) =>
    train(files, options, context),
  );
};

async function train(
  files: readonly string[],
  options: TrainOptions,
  context: CommandContext,
): Promise<void> {
  const { epochs, maxSteps, batchSize, trainOn, reduction, maxLength } = options;
  const { testSize, testFile, best, patience, price } = options;
  const settings = {
    ...runOptions(options),
    data: conversations(files),
    testData: testFile && conversations(testFile),
    ...{ epochs, maxSteps, batchSize, trainOn, reduction, maxLength, testSize },
    best: patience === undefined ? best : { patience },
    pricePerMillionTokens: price,
  };
  await runTrainingCommand(
    {
      file: files[0]!,
      plan: (place) => planSupervised({ ...settings, ...place }),
      train: (place) => trainSupervised({ ...settings, ...place }),
    },
    options,
    context,
  );
}
