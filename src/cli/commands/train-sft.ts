import { Option } from "commander";
import { conversations } from "../../cookbook/data/index.js";
import {
  planSupervised,
  type TrainSupervisedOptions,
  trainSupervised,
} from "../../cookbook/supervised/index.js";
import type { CommandModule } from "../context.js";
import { trainOnOption } from "../option-values.js";
import { addRowsOptions, type RowsCommandOptions, rowsOptions } from "../train/rows-options.js";
import { runTrainingCommand } from "../train/run-command.js";
import { addRunOptions, modelOption, type RunCommandOptions, runOptions } from "../train/run-options.js";

interface TrainOptions extends RunCommandOptions, RowsCommandOptions {
  readonly trainOn: NonNullable<TrainSupervisedOptions["trainOn"]>;
  readonly reduction: NonNullable<TrainSupervisedOptions["reduction"]>;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<files...>", "conversations, one a line: .jsonl, .jsonl.gz or .parquet")
    .addOption(modelOption());
  addRowsOptions(command)
    .addOption(trainOnOption())
    .addOption(
      new Option("--reduction <way>", "whether each example counts the same, or each token")
        .choices(["mean", "sum"])
        .default("mean"),
    );
  addRunOptions(command, { schedule: "linear" }).action((files: readonly string[], options: TrainOptions) => {
    const { trainOn, reduction } = options;
    const rows = rowsOptions(files, options, conversations);
    const settings = { ...runOptions(options), ...rows, trainOn, reduction };
    return runTrainingCommand(
      {
        file: files[0]!,
        plan: (place) => planSupervised({ ...settings, ...place }),
        train: (place) => trainSupervised({ ...settings, ...place }),
      },
      options,
      context,
    );
  });
};
