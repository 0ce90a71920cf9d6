import { readdir } from "node:fs/promises";
import { holderOf } from "../../files.node.js";
import { parseJsonObject } from "../../training/json-lines.node.js";
import type { RunDetails, RunList, RunNotes, RunState, RunSummary } from "../api.js";
import { FileCache, readEnd, readStart } from "./file-cache.js";
import { headlineOf } from "./metric-names.js";
import { MetricsColumns } from "./metrics-columns.js";
import { RunDigests } from "./run-digest.js";
import { folderAbove, readSweep, readWarnings, settingValues, sweepOf } from "./run-facts.js";
import { fileOf, type RunFolders, type ShownFolder } from "./run-folders.js";
import { NOTES_FILE, readNotes, writeNotes } from "./run-notes.js";

/** The newest value of each metric stands in the last lines. */
const METRICS_END_BYTES = 128 << 10;
const FIRST_LINE_BYTES = 64 << 10;
const MAX_CHECKPOINT_BYTES = 4 << 20;
const MAX_CONFIG_BYTES = 1 << 20;
const LOG_END_BYTES = 32 << 10;
/** A run of another program that wrote something so lately is taken to be running. */
const RUNNING_MS = 120_000;
/** The last moment that a date can be. */
const MAX_DATE = 8.64e15;
/** Pages that ask at the same time share one answer. */
const FRESH_MS = 500;
const PROGRESS = ["progress", "progress/done_frac"];

/** Rows of the list of runs, read from the ends of their files. */
export class RunSummaries {
  readonly #folders: RunFolders;
  readonly #configs = new FileCache(readConfig);
  readonly #metrics = new FileCache(readNewestMetrics);
  readonly #checkpoints = new FileCache(readCheckpoints);
  readonly #notes = new FileCache(readNotes);
  readonly #warnings = new FileCache(readWarnings);
  readonly #sweeps = new FileCache(readSweep);
  readonly #digests = new RunDigests();
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

  /** Reads the files again at the next call. */
  forget(): void {
    this.#staleAt = 0;
  }

  async #read(): Promise<RunList> {
    const folders = await this.#folders.list();
    const runs: RunSummary[] = [];
    for (const folder of folders) runs.push(await this.#summaryOf(folder));
    runs.sort((one, other) => other.updatedAt - one.updatedAt || one.name.localeCompare(other.name));
    const { roots, problems, isCut } = this.#folders;
    return { folders: roots, problems, runs, isCut };
  }

  async details(folder: ShownFolder): Promise<RunDetails> {
    const config = await this.#configs.of(folder, "config.json");
    const log = await new FileCache((path) => readEnd(path, LOG_END_BYTES)).of(folder, "logs.log");
    return { run: await this.#summaryOf(folder), config: config?.value ?? {}, log: log?.value ?? "" };
  }

  /** The lines of a run's `checkpoints.jsonl`. */
  async checkpoints(folder: ShownFolder): Promise<readonly Readonly<Record<string, unknown>>[]> {
    return (await this.#checkpoints.of(folder, "checkpoints.jsonl"))?.value ?? [];
  }

  /** The model that a run's settings name. */
  async modelOf(folder: ShownFolder): Promise<string | undefined> {
    return modelIn((await this.#configs.of(folder, "config.json"))?.value ?? {});
  }

  /** Replaces tags and note of a run. */
  async note(folder: ShownFolder, notes: RunNotes): Promise<void> {
    await writeNotes(folder, notes);
    this.forget();
  }

  async #summaryOf(folder: ShownFolder): Promise<RunSummary> {
    const above = folderAbove(folder);
    const [config, metrics, checkpoints, notes, warnings, sweep, entries, lock] = await Promise.all([
      this.#configs.of(folder, "config.json"),
      this.#metrics.of(folder, "metrics.jsonl"),
      this.#checkpoints.of(folder, "checkpoints.jsonl"),
      this.#notes.of(folder, NOTES_FILE),
      this.#warnings.of(folder, "warnings.jsonl"),
      above && this.#sweeps.of(above, "sweep.json"),
      readdir(folder.path).catch(() => []),
      fileOf(folder, ".lock").then(async (lock) =>
        lock === undefined ? "none" : (await holderOf(folder.path)) === undefined ? "left behind" : "held",
      ),
    ]);
    const writtenAt = [config, metrics, checkpoints].map((file) => file?.modifiedAt ?? 0);
    const updatedAt = Math.min(Math.max(0, ...writtenAt), MAX_DATE);
    const isFinished = checkpoints?.value.some(isFinal) ?? false;
    const { curve, ...digest } = await this.#digests.of(folder, sweep?.value);
    const settings = config?.value ?? {};
    const newest: Newest = metrics?.value ?? {};
    return {
      id: folder.id,
      name: folder.name,
      folder: folder.path,
      model: modelIn(settings),
      state: stateOf(isFinished, lock, updatedAt),
      ...newest,
      ...digest,
      curve: curve(newest.headline?.name),
      config: settingValues(settings),
      tags: notes?.value.tags ?? [],
      note: notes?.value.note ?? "",
      warnings: warnings?.value ?? [],
      sweep: above && sweep && sweepOf(folder, above, sweep.value),
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

/** The lock of a run's folder: a killed process leaves it behind. */
type Lock = "held" | "left behind" | "none";

function stateOf(isFinished: boolean, lock: Lock, updatedAt: number): RunState {
  if (lock === "held") return "running";
  if (isFinished) return "finished";
  if (lock === "left behind") return "stopped";
  return Math.abs(Date.now() - updatedAt) < RUNNING_MS ? "running" : "stopped";
}

async function readConfig(path: string): Promise<Readonly<Record<string, unknown>>> {
  return parseJsonObject(await readEnd(path, MAX_CONFIG_BYTES)) ?? {};
}

function modelIn(config: Readonly<Record<string, unknown>>): string | undefined {
  const name = config["model_name"];
  return typeof name === "string" ? name : undefined;
}

type Newest = Pick<RunSummary, "step" | "steps" | "progress" | "headline" | "costUsd">;

async function readNewestMetrics(path: string): Promise<Newest> {
  const columns = new MetricsColumns();
  const text = await readEnd(path, METRICS_END_BYTES);
  const end = text.lastIndexOf("\n") + 1;
  columns.add(Buffer.from(text.slice(0, end)));
  // What follows is a line that is being written, or the last line of a program that ends it with nothing.
  if (parseJsonObject(text.slice(end)) !== undefined) columns.add(Buffer.from(text.slice(end)));
  const firstStep = parseJsonObject((await readStart(path, FIRST_LINE_BYTES)).split("\n", 1)[0]!)?.["step"];
  const series = columns.series({ points: 1 });
  const names = Object.keys(series);
  const headline = headlineOf(names);
  const progress = PROGRESS.map((name) => series[name]?.stats).find(
    (stats) => typeof stats?.last === "number",
  );
  const { lastStep: step } = columns;
  // An evaluation after the last step has a line of its own.
  const lastTrained = progress?.lastStep ?? step;
  return {
    step,
    // Most programs count from 0, some from 1.
    steps: lastTrained === undefined ? undefined : firstStep === 1 ? lastTrained : lastTrained + 1,
    progress: progress?.last ?? undefined,
    costUsd: series["cost/usd"]?.stats.last ?? undefined,
    headline: headline === undefined ? undefined : { name: headline, value: series[headline]!.stats.last },
  };
}

async function readCheckpoints(path: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const lines = (await readEnd(path, MAX_CHECKPOINT_BYTES)).split("\n");
  return lines.map(parseJsonObject).filter((line) => line !== undefined);
}
