import type { Command } from "commander";
import { type ConversationsOptions, conversations, type Source } from "../../cookbook/data/index.js";
import { comparisons, DPO_OPTIONS, planDpo, trainDpo } from "../../cookbook/preferences/index.js";
import type { FinishedRun, RunPlan } from "../../cookbook/runs/index.js";
import { planSupervised, SUPERVISED_OPTIONS, trainSupervised } from "../../cookbook/supervised/index.js";
import type { Shape } from "../../wire/index.js";
import type { CommandModule } from "../context.js";
import { addDataFlags, type DataFlags, FILES_HELP, rowNames } from "../data-flags.js";
import { gathered } from "../option-values.js";
import { runTrainingCommand, type TrainingPlace } from "../train/run-command.js";
import {
  addTrainingFlags,
  modelOption,
  type RunCommandOptions,
  trainingOptions,
} from "../train/run-options.js";

/** A kind of training on files of rows. */
interface RowsTraining<Row> {
  /** Contents of a line of the file, for the help. */
  readonly rows: string;
  /** Whether rows may be in several formats. */
  readonly hasFormats: boolean;
  readonly options: Shape;
  readonly read: (files: readonly string[], names: ConversationsOptions) => Source<Row>;
  readonly plan: (options: RowsSettings<Row>) => Promise<RunPlan>;
  readonly train: (options: RowsSettings<Row>) => Promise<FinishedRun>;
}

type RowsSettings<Row> = TrainingPlace & {
  readonly data: Source<Row>;
  readonly testData: Source<Row> | undefined;
};

function rowsTraining<Row>({
  rows,
  hasFormats,
  options: fields,
  read,
  plan,
  train,
}: RowsTraining<Row>): CommandModule {
  type Options = RunCommandOptions & DataFlags & { readonly testFile?: readonly string[] };
  const define: CommandModule["define"] = (command: Command, context) => {
    command.argument("<files...>", `${rows}: ${FILES_HELP}`).addOption(modelOption());
    const testHelp = "evaluate on this file instead of held-out rows (repeatable)";
    if (hasFormats) addDataFlags(command);
    addTrainingFlags(command, fields)
      .option("--test-file <file>", testHelp, gathered(String))
      .action((files: readonly string[], options: Options) => {
        const names = rowNames(options);
        const testData = options.testFile && read(options.testFile, names);
        const settings = { ...trainingOptions(fields, options), data: read(files, names), testData };
        const kind = {
          file: files[0]!,
          plan: (place: TrainingPlace) => plan({ ...settings, ...place }),
          train: (place: TrainingPlace) => train({ ...settings, ...place }),
        };
        return runTrainingCommand(kind, options, context);
      });
  };
  return { define };
}

export const sft = rowsTraining({
  rows: "conversations",
  hasFormats: true,
  options: SUPERVISED_OPTIONS.fields,
  read: conversations,
  plan: planSupervised,
  train: trainSupervised,
});

export const dpo = rowsTraining({
  rows: "comparisons",
  hasFormats: false,
  options: DPO_OPTIONS.fields,
  read: (files) => comparisons(files),
  plan: planDpo,
  train: trainDpo,
});
