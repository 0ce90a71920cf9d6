import { comparisons, planDpo, trainDpo } from "../../cookbook/preferences/index.js";
import type { CommandModule } from "../context.js";
import { addRowsOptions, type RowsCommandOptions, rowsOptions } from "../train/rows-options.js";
import { runTrainingCommand } from "../train/run-command.js";
import {
  addRunOptions,
  modelOption,
  positive,
  type RunCommandOptions,
  runOptions,
} from "../train/run-options.js";

interface TrainOptions extends RunCommandOptions, RowsCommandOptions {
  readonly beta?: number;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<files...>", "comparisons, one a line: .jsonl, .jsonl.gz or .parquet")
    .addOption(modelOption())
    .option("--beta <number>", "the higher, the nearer to the model it began as (default: 0.1)", positive);
  addRowsOptions(command);
  addRunOptions(command, { schedule: "linear" }).action((files: readonly string[], options: TrainOptions) => {
    const rows = rowsOptions(files, options, comparisons);
    const settings = { ...runOptions(options), ...rows, beta: options.beta };
    return runTrainingCommand(
      {
        file: files[0]!,
        plan: (place) => planDpo({ ...settings, ...place }),
        train: (place) => trainDpo({ ...settings, ...place }),
      },
      options,
      context,
    );
  });
};
