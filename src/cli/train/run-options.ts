import { basename, join } from "node:path";
import { type Command, InvalidArgumentError, Option } from "commander";
import { defaultModel } from "../../local/default-model.js";
import type { Shape } from "../../wire/index.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { MODEL_HELP } from "../named-model.js";
import { addFlags, optionsFromFlags } from "../option-flags.js";

/** Options of every training command besides those of its kind of training. */
export interface RunCommandOptions extends DeviceOptions {
  readonly model?: string;
  readonly folder?: string;
  readonly rank?: number;
  readonly startFrom?: string;
  readonly forVllm?: true;
  readonly tensorboard?: true;
  readonly dryRun?: true;
  /** Groups that a dry run samples for its estimate. */
  readonly sampleGroups?: number;
  /** True: open it; false: no dashboard. */
  readonly dashboard?: boolean;
}

/** The first flag, which stands above those of the kind of training. */
export function modelOption(): Option {
  return new Option("--model <model>", `${MODEL_HELP} (default without a server: ${defaultModel.name})`);
}

/** Adds the flags of a kind of training, and those that every training command has. */
export function addTrainingFlags(command: Command, fields: Shape): Command {
  addFlags(command, fields)
    .option("--for-vllm", "train an adapter that vLLM can load: the same as --no-train-unembed")
    .option("--tensorboard", "write event files into the folder, for tensorboard --logdir")
    .option("--dashboard", "open the run in the browser")
    .option("--no-dashboard", "do not serve the dashboard")
    .option("--dry-run", "check everything and show settings, tokens and cost, without training");
  return addDeviceOptions(command);
}

/** The flag of kinds of training that sample, for the estimate of a dry run. */
export function sampleGroupsOption(): Option {
  return new Option(
    "--sample-groups <number>",
    "with --dry-run: sample this many groups to estimate tokens and dollars",
  ).argParser((text) => {
    const count = Number(text);
    if (Number.isSafeInteger(count) && count > 0) return count;
    throw new InvalidArgumentError("It must be a positive integer.");
  });
}

/** The options of a kind of training that were set on the command line. */
export function trainingOptions(fields: Shape, options: RunCommandOptions): Record<string, unknown> {
  return { ...optionsFromFlags(fields, options), ...(options.forVllm && { trainUnembed: false }) };
}

/** Default folder: runs/FILE-MODEL. */
export function defaultFolder(file: string, model: string): string {
  const plain = file.replace(/=[\d.]+$/, "").replaceAll(/[*?[\]{}:]+/g, "-");
  const name = basename(plain).replace(/\.(?:(?:jsonl?|ndjson|csv|tsv)(?:\.gz)?|parquet|[cm]?[jt]s)$/, "");
  const modelName = model.split("/").at(-1)!;
  return join("runs", `${name}-${modelName.replaceAll(/[^\w.-]+/g, "-")}`);
}
