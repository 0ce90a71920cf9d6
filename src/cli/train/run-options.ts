import { basename, join } from "node:path";
import { type Command, InvalidArgumentError, Option } from "commander";
import type { RunOptions } from "../../cookbook/runs/index.js";
import { SCHEDULES } from "../../cookbook/runs/schedule.js";
import { defaultModel } from "../../local/default-model.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { wholeNumber } from "../option-values.js";

/** The options that every kind of training has. */
export interface RunCommandOptions extends DeviceOptions {
  readonly model?: string;
  readonly learningRate?: number;
  readonly schedule?: NonNullable<RunOptions["schedule"]>;
  readonly warmup?: number;
  readonly rank?: number;
  readonly renderer?: string;
  readonly startFrom?: string;
  readonly seed: number;
  readonly evaluateEvery?: number;
  readonly saveEvery?: number;
  readonly folder?: string;
  readonly tensorboard?: true;
  readonly dryRun?: true;
  /** True: open it; false: none. */
  readonly dashboard?: boolean;
}

const MAX_COUNT = 1_000_000_000;

/** Reads a count. */
export const count = (least = 1) => wholeNumber(least, MAX_COUNT);

/** The first one, which stands above those of the kind of training. */
export function modelOption(): Option {
  const local = `without a server also a Hugging Face id (default there: ${defaultModel.name})`;
  return new Option("--model <name>", `a model of the server; ${local}`);
}

/** Adds the options of every kind of training, but the model. */
export function addRunOptions(command: Command, defaults: { readonly schedule: string }): Command {
  command
    .option("--learning-rate <number>", "the highest one (default: the recommended one)", positive)
    .addOption(
      new Option("--schedule <name>", "how it goes down").choices(SCHEDULES).default(defaults.schedule),
    )
    .option("--warmup <number>", "steps, or a fraction of them all, in which it goes up first", positive)
    .option("--rank <number>", "the rank of the adapter (default: 32)", count())
    .option("--renderer <name>", "how conversations are written (default: what fits the model)")
    .option("--start-from <tinker-path>", "begin with saved weights, as tinker://RUN/weights/NAME")
    .option("--seed <number>", "decides the order of the data and the first weights", count(0), 0)
    .option("--evaluate-every <steps>", "0 for never (default: a tenth of the run)", count(0))
    .option("--save-every <steps>", "steps between checkpoints (default: 20)", count())
    .option("--folder <folder>", "where the run is kept (default: runs/FILE-MODEL)")
    .option("--tensorboard", "write event files into the folder, for tensorboard --logdir")
    .option("--dashboard", "open the page that shows the run in the browser")
    .option("--no-dashboard", "serve no such page")
    .option("--dry-run", "check everything, and show counts and settings");
  return addDeviceOptions(command);
}

/** What they say to a training loop. */
export function runOptions(options: RunCommandOptions) {
  const { learningRate, schedule, warmup, rank, renderer, startFrom, seed, evaluateEvery } = options;
  const save = { everySteps: options.saveEvery };
  return { learningRate, schedule, warmup, rank, renderer, startFrom, seed, evaluateEvery, save };
}

/** runs/FILE-MODEL. */
export function defaultFolder(file: string, model: string): string {
  const name = basename(file).replace(/\.(?:jsonl(?:\.gz)?|parquet|[cm]?[jt]s)$/, "");
  const modelName = model.split("/").at(-1)!;
  return join("runs", `${name}-${modelName.replaceAll(/[^\w.-]+/g, "-")}`);
}

/** Reads a number above 0. */
export function positive(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value > 0 && value < Number.POSITIVE_INFINITY))
    throw new InvalidArgumentError("It must be a number above 0.");
  return value;
}

/** Reads a number from 0 on. */
export function notNegative(text: string): number {
  return text.trim() === "0" ? 0 : positive(text);
}
