import { readdir, readFile, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { closestName } from "../wire/fields/describe.js";
import { isRecord } from "../wire/index.js";
import { UsageError } from "./context.js";

/** A model as named on a command line. */
export interface NamedModel {
  /** As the user wrote it. */
  readonly name: string;
  /** Undefined if only the server knows the base model of the weights. */
  readonly baseModel?: string | undefined;
  /** Path of saved weights to sample from. */
  readonly samplerPath?: string | undefined;
  /** Path of saved weights to train from. */
  readonly statePath?: string | undefined;
  /** Set for the folder of a run. */
  readonly runFolder?: string | undefined;
  /** Where the run keeps its weights itself: a program trained it on a backend with temporary data. */
  readonly ownWeights?: string | undefined;
}

/** Help of every `--model` that accepts all of these. */
export const MODEL_HELP = "a base model, saved weights (tinker://...), or the folder of a run";

/** Reads `--model`: a `tinker://` path, the folder of a run, or else the name of a base model. */
export async function namedModel(name: string | undefined): Promise<NamedModel> {
  if (name === undefined || name === "") {
    throw new UsageError(
      "which model? Give --model: a name of `tinkerts models`, a tinker:// path of `tinkerts checkpoint list`, or the folder of a run",
    );
  }
  if (name.startsWith("tinker://")) {
    return { name, ...(name.includes("/sampler_weights/") ? { samplerPath: name } : { statePath: name }) };
  }
  const run = await runModel(name);
  if (run === undefined) await refuseMissingRun(name);
  return run ?? { name, baseModel: name };
}

/** Refuses a name beside the folders of runs that is none of them: it is not a model of a hub. */
async function refuseMissingRun(name: string): Promise<void> {
  const parent = dirname(name);
  const folders = await readdir(parent).catch(() => []);
  const isRun = await Promise.all(folders.map((folder) => isFile(checkpointsFile(join(parent, folder)))));
  const runs = folders.filter((_, index) => isRun[index]);
  // A model's name has two parts, and no folder here.
  if (runs.length === 0 || parent === ".") return;
  const meant = closestName(basename(name), runs);
  const advice =
    meant === undefined
      ? `\`tinkerts dashboard ${parent}\` shows the runs there`
      : `did you mean ${join(parent, meant)}?`;
  throw new UsageError(`there is no run in ${name}: ${advice}`);
}

const checkpointsFile = (folder: string) => join(folder, "checkpoints.jsonl");

/** The base model or the weights that a sampling client is made from. */
export function samplingSource({
  name,
  baseModel = name,
  samplerPath,
  statePath,
}: NamedModel):
  | { readonly baseModel: string; modelPath?: undefined }
  | { readonly modelPath: string; baseModel?: undefined } {
  const modelPath = samplerPath ?? statePath;
  return modelPath === undefined ? { baseModel } : { modelPath };
}

/** The model in a run's folder: its best weights if it kept them, else its latest. */
async function runModel(folder: string): Promise<NamedModel | undefined> {
  const file = checkpointsFile(folder);
  if (!(await isFile(file))) return undefined;
  const lines = (await readFile(file, "utf8")).split("\n").map(parsed).filter(isRecord);
  const textOf = (record: Record<string, unknown> | undefined, key: string) =>
    typeof record?.[key] === "string" ? record[key] : undefined;
  const sampled = lines.filter((line) => textOf(line, "sampler_path") !== undefined);
  const chosen = sampled.findLast((line) => line["name"] === "best") ?? sampled.at(-1);
  const state = lines.findLast((line) => textOf(line, "state_path") !== undefined);
  if (chosen === undefined && state === undefined) {
    throw new UsageError(
      `the run in ${folder} has no checkpoint yet: wait for the first one, or give another --model`,
    );
  }
  const config = parsed(await readFile(join(folder, "config.json"), "utf8").catch(() => "{}"));
  return {
    name: folder,
    baseModel: isRecord(config) ? (textOf(config, "model_name") ?? textOf(config, "model")) : undefined,
    samplerPath: textOf(chosen, "sampler_path"),
    statePath: textOf(state, "state_path"),
    runFolder: folder,
    ownWeights: (await isFolder(join(folder, "weights"))) ? join(folder, "weights") : undefined,
  };
}

async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isFile() === true;
}

async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isDirectory() === true;
}

/** A line that a crash cut off is ignored. */
function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
