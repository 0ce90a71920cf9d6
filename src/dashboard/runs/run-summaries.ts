import { readdir } from "node:fs/promises";
import { holderOf } from "../../files.node.js";
import { parseJsonObject } from "../../training/json-lines.node.js";
import type { RunDetails, RunList, RunState, RunSummary } from "../api.js";
import { FileCache, readEnd } from "./file-cache.js";
import { MetricsColumns } from "./metrics-columns.js";
import { fileOf, type RunFolder, type RunFolders } from "./run-folders.js";

/** The newest value of each metric stands in the last lines. */
const METRICS_END_BYTES = 128 << 10;
const MAX_CHECKPOINT_BYTES = 4 << 20;
const MAX_CONFIG_BYTES = 1 << 20;
const LOG_END_BYTES = 32 << 10;
/** A run of another program that wrote something so lately is taken to be running. */
const RUNNING_MS = 120_000;
/** The last moment that a date can be. */
const MAX_DATE = 8.64e15;
/** Pages that look at the same time are told the same. */
const FRESH_MS = 500;
/** What a run is about, the first that it has. */
const HEADLINES = [
  /^env\/all\/reward\/total$/,
  /^env\/.*reward/,
  /(?:^|\/)reward(?:\/|$)/,
  /^train_mean_nll$/,
  /^(?:train\/)?(?:dpo_)?loss$/,
  /(?:^|[/_])(?:loss|nll)$/,
];
const PROGRESS = ["progress", "progress/done_frac"];

/** What the list of runs shows, read from the ends of their files. */
export class RunSummaries {
  readonly #folders: RunFolders;
  readonly #configs = new FileCache(readConfig);
  readonly #metrics = new FileCache(readNewestMetrics);
  readonly #checkpoints = new FileCache(readCheckpoints);
  #listed: Promise<RunList> | undefined;
  #staleAt = 0;

  constructor(folders: RunFolders) {
    this.#folders = folders;
  }

  /** Read once for all pages that look at this moment. */
  list(): Promise<RunList> {
    if (this.#listed === undefined || performance.now() > this.#staleAt) {
      this.#staleAt = Number.POSITIVE_INFINITY;
      this.#listed = this.#read().finally(() => {
        this.#staleAt = performance.now() + FRESH_MS;
      });
    }
    return this.#listed;
  }

  async #read(): Promise<RunList> {
    const folders = await this.#folders.list();
    const runs: RunSummary[] = [];
    for (const folder of folders) runs.push(await this.#summaryOf(folder));
    runs.sort((one, other) => other.updatedAt - one.updatedAt || one.name.localeCompare(other.name));
    return { folders: this.#folders.roots, runs, isCut: this.#folders.isCut };
  }

  async details(folder: RunFolder): Promise<RunDetails> {
    const config = await this.#configs.of(folder, "config.json");
    const log = await new FileCache((path) => readEnd(path, LOG_END_BYTES)).of(folder, "logs.log");
    return { run: await this.#summaryOf(folder), config: config?.value ?? {}, log: log?.value ?? "" };
  }

  /** The lines of a run's `checkpoints.jsonl`. */
  async checkpoints(folder: RunFolder): Promise<readonly Readonly<Record<string, unknown>>[]> {
    return (await this.#checkpoints.of(folder, "checkpoints.jsonl"))?.value ?? [];
  }

  /** The model that a run's settings name. */
  async modelOf(folder: RunFolder): Promise<string | undefined> {
    return modelIn((await this.#configs.of(folder, "config.json"))?.value ?? {});
  }

  async #summaryOf(folder: RunFolder): Promise<RunSummary> {
    const [config, metrics, checkpoints, entries, holder] = await Promise.all([
      this.#configs.of(folder, "config.json"),
      this.#metrics.of(folder, "metrics.jsonl"),
      this.#checkpoints.of(folder, "checkpoints.jsonl"),
      readdir(folder.path).catch(() => []),
      fileOf(folder, ".lock").then((lock) => (lock === undefined ? undefined : holderOf(folder.path))),
    ]);
    const writtenAt = [config, metrics, checkpoints].map((file) => file?.modifiedAt ?? 0);
    const updatedAt = Math.min(Math.max(0, ...writtenAt), MAX_DATE);
    const isFinished = checkpoints?.value.some(isFinal) ?? false;
    return {
      id: folder.id,
      name: folder.name,
      folder: folder.path,
      model: modelIn(config?.value ?? {}),
      state: stateOf(isFinished, holder !== undefined, updatedAt),
      ...metrics?.value,
      updatedAt,
      hasSamples: entries.some((name) => /^iteration_\d+$/.test(name)),
      checkpoints: checkpoints?.value.length ?? 0,
    };
  }
}

/** Whether a line of `checkpoints.jsonl` is that of a run's end, which the Python cookbook says by its name alone. */
export function isFinal({ name, final }: Readonly<Record<string, unknown>>): boolean {
  return final === true || name === "final";
}

function stateOf(isFinished: boolean, isHeld: boolean, updatedAt: number): RunState {
  if (isHeld) return "running";
  if (isFinished) return "finished";
  return Math.abs(Date.now() - updatedAt) < RUNNING_MS ? "running" : "stopped";
}

async function readConfig(path: string): Promise<Readonly<Record<string, unknown>>> {
  return parseJsonObject(await readEnd(path, MAX_CONFIG_BYTES)) ?? {};
}

function modelIn(config: Readonly<Record<string, unknown>>): string | undefined {
  const name = config["model_name"];
  return typeof name === "string" ? name : undefined;
}

async function readNewestMetrics(path: string): Promise<Pick<RunSummary, "step" | "progress" | "headline">> {
  const columns = new MetricsColumns();
  const text = await readEnd(path, METRICS_END_BYTES);
  // A line that is being written.
  columns.add(text.slice(0, text.lastIndexOf("\n") + 1));
  const series = columns.series({ points: 1 });
  const names = Object.keys(series);
  const headline = HEADLINES.map((pattern) => names.find((name) => pattern.test(name))).find(
    (name) => name !== undefined,
  );
  const progress = PROGRESS.map((name) => series[name]?.stats.last).find(
    (value) => typeof value === "number",
  );
  return {
    step: columns.lastStep,
    progress: progress ?? undefined,
    headline: headline === undefined ? undefined : { name: headline, value: series[headline]!.stats.last },
  };
}

async function readCheckpoints(path: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const lines = (await readEnd(path, MAX_CHECKPOINT_BYTES)).split("\n");
  return lines.map(parseJsonObject).filter((line) => line !== undefined);
}
