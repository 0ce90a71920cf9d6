/** A run on disk: its settings, metrics and checkpoints, in the files of the Tinker cookbook. */
import { mkdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { TinkerError, ValidationError } from "../errors.js";
import { FolderLock, syncFolder, writeFileAtomic } from "../files.node.js";
import * as f from "../wire/index.js";
import { JsonLines, parseJsonObject } from "./json-lines.node.js";
import type { MetricValue, RecoveryLog, RunCheckpoint, RunMetrics } from "./recovery/index.js";

/** One line of `checkpoints.jsonl`. Other programs may leave out what a run needs to resume. */
export interface CheckpointRecord {
  readonly name: string;
  /** Number of steps trained before the checkpoint. */
  readonly batch?: number | undefined;
  readonly epoch?: number | undefined;
  readonly final?: boolean | undefined;
  readonly statePath?: string | undefined;
  readonly samplerPath?: string | undefined;
  /** The user's own fields, kept as they are. */
  readonly extra?: Readonly<Record<string, unknown>> | undefined;
}

/** The settings that a run log remembers, for `RunLog.open`. */
export interface RunLogOptions {
  /** Written to `config.json`; a log with another config is refused. Kept as it is, so it must be JSON. */
  readonly config?: Readonly<Record<string, unknown>> | undefined;
  /** Replace another `config.json` instead of refusing it, for a run that continues with changed settings. */
  readonly replaceConfig?: boolean | undefined;
}

const RUN_LOG_OPTIONS = f.optionTable({
  config: f.optional(f.value<Readonly<Record<string, unknown>>>("an object", f.isRecord)),
  replaceConfig: f.withDefault(f.boolean, false),
} satisfies f.FieldsOf<RunLogOptions>);

/**
 * A run on disk, in the files and fields of the Tinker cookbook: `config.json`, `metrics.jsonl` and
 * `checkpoints.jsonl`. Lines are only ever added, each is on disk before its call resolves, and one that a crash cut
 * short is gone when the log is opened again. One process writes a log at a time.
 */
export class RunLog implements RecoveryLog {
  readonly folder: string;
  readonly config: Readonly<Record<string, unknown>> | undefined;
  readonly #lock: FolderLock;
  readonly #metrics: JsonLines;
  readonly #checkpointLines: JsonLines;
  readonly #checkpoints: CheckpointRecord[];
  // Every call returns these objects, so that they can be compared.
  readonly #resumable: RunCheckpoint[];
  #lastMetricsStep: number | undefined;

  private constructor(parts: {
    folder: string;
    lock: FolderLock;
    config: Readonly<Record<string, unknown>> | undefined;
    metrics: JsonLines;
    checkpointLines: JsonLines;
  }) {
    this.folder = parts.folder;
    this.#lock = parts.lock;
    this.config = parts.config;
    this.#metrics = parts.metrics;
    this.#checkpointLines = parts.checkpointLines;
    this.#checkpoints = parts.checkpointLines.initial.map(fromLine);
    this.#resumable = this.#checkpoints.filter(isResumable);
    for (const { step } of parts.metrics.initial as { step?: unknown }[]) {
      if (typeof step === "number") this.#lastMetricsStep = Math.max(step, this.#lastMetricsStep ?? step);
    }
  }

  /** Opens a run's folder, or makes it. */
  static async open(folder: string, options: RunLogOptions = {}): Promise<RunLog> {
    const settings = RUN_LOG_OPTIONS.check(options, "RunLog.open");
    const path = resolve(folder);
    await mkdir(path, { recursive: true });
    const lock = await FolderLock.take(path, "run log");
    const files: JsonLines[] = [];
    try {
      const config = await settleConfig(path, settings);
      const metrics = await JsonLines.open(join(path, "metrics.jsonl"));
      files.push(metrics);
      const checkpointLines = await JsonLines.open(join(path, "checkpoints.jsonl"));
      files.push(checkpointLines);
      await syncFolder(path);
      return new RunLog({ folder: path, lock, config, metrics, checkpointLines });
    } catch (error) {
      for (const file of files) await file.close();
      await lock.release();
      throw error;
    }
  }

  /** Every checkpoint, oldest first. */
  get checkpoints(): readonly CheckpointRecord[] {
    return this.#checkpoints;
  }

  /** The last checkpoint that has weights, optimizer and step; undefined for a run that never got so far. */
  get lastCheckpoint(): RunCheckpoint | undefined {
    return this.#resumable.at(-1);
  }

  resumableCheckpoints(): readonly RunCheckpoint[] {
    return this.#resumable;
  }

  get lastMetricsStep(): number | undefined {
    return this.#lastMetricsStep;
  }

  /** Adds a line to `metrics.jsonl`; numbers that JSON does not have (NaN, infinities) become null. */
  async logMetrics(metrics: RunMetrics, step?: number): Promise<void> {
    // Twice: the step comes first, and wins over a metric of that name.
    const known = step === undefined ? {} : { step };
    await this.#metrics.append({ ...known, ...metrics, ...known });
    if (step !== undefined) this.#lastMetricsStep = Math.max(step, this.#lastMetricsStep ?? step);
  }

  /** Adds a line to `checkpoints.jsonl`. */
  async logCheckpoint(checkpoint: CheckpointRecord): Promise<void> {
    const { name } = checkpoint;
    if (typeof name !== "string" || name === "")
      throw new ValidationError("name", `name must be a non-empty string, got ${JSON.stringify(name)}`);
    await this.#checkpointLines.append(toLine(checkpoint));
    this.#checkpoints.push(checkpoint);
    if (isResumable(checkpoint)) this.#resumable.push(checkpoint);
  }

  /** Every line of `metrics.jsonl`. */
  async readMetrics(): Promise<readonly Readonly<Record<string, MetricValue>>[]> {
    return (await this.#metrics.read()) as Readonly<Record<string, MetricValue>>[];
  }

  async close(): Promise<void> {
    await this.#metrics.close();
    await this.#checkpointLines.close();
    await this.#lock.release();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function isResumable(record: CheckpointRecord): record is RunCheckpoint {
  return record.statePath !== undefined && Number.isInteger(record.batch);
}

const NAME_ON_DISK = {
  name: "name",
  batch: "batch",
  epoch: "epoch",
  final: "final",
  statePath: "state_path",
  samplerPath: "sampler_path",
} as const;

function toLine(record: CheckpointRecord): Record<string, unknown> {
  const line: Record<string, unknown> = {};
  for (const [key, onDisk] of Object.entries(NAME_ON_DISK)) {
    const value = record[key as keyof typeof NAME_ON_DISK];
    if (value !== undefined) line[onDisk] = value;
  }
  // Twice: known fields come first, and win over the user's own of the same name.
  return { ...line, ...record.extra, ...line };
}

function fromLine(line: Readonly<Record<string, unknown>>): CheckpointRecord {
  const extra = { ...line };
  const record: Record<string, unknown> = {};
  for (const [key, onDisk] of Object.entries(NAME_ON_DISK)) {
    if (line[onDisk] !== undefined && line[onDisk] !== null) record[key] = line[onDisk];
    delete extra[onDisk];
  }
  if (Object.keys(extra).length > 0) record["extra"] = extra;
  return record as unknown as CheckpointRecord;
}

/** A setting in which the run of a folder differs from the requested one. */
export interface ChangedSetting {
  readonly name: string;
  readonly before: unknown;
  readonly now: unknown;
}

/** The settings in which the run of a folder differs from these; none where there is no run yet. */
export async function changedSettings(
  folder: string,
  config: Readonly<Record<string, unknown>>,
): Promise<readonly ChangedSetting[]> {
  const existing = await readConfig(folder);
  if (existing === undefined) return [];
  const wanted = asJson(config);
  return differences(existing, wanted).map((name) => ({ name, before: existing[name], now: wanted[name] }));
}

async function settleConfig(
  folder: string,
  { config, replaceConfig }: RunLogOptions,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const existing = await readConfig(folder);
  if (config === undefined) return existing;
  const wanted = asJson(config);
  if (existing !== undefined) {
    const changed = differences(existing, wanted);
    if (changed.length === 0) return existing;
    if (!replaceConfig) {
      throw new ValidationError(
        "config",
        `config must be that of the run in ${folder}, which differs in ${changed.join(", ")}; ` +
          "give another folder for another run, or replaceConfig to continue with the new settings",
      );
    }
  }
  await writeFileAtomic(configFile(folder), JSON.stringify(wanted, null, 2));
  return wanted;
}

const configFile = (folder: string) => join(folder, "config.json");

async function readConfig(folder: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  const path = configFile(folder);
  const text = await readFile(path, "utf8").catch(ifMissing);
  const existing = text === undefined ? undefined : parseJsonObject(text);
  if (text !== undefined && existing === undefined) throw new TinkerError(`${path} is not a JSON object.`);
  return existing;
}

function asJson(config: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return JSON.parse(JSON.stringify(config)) as Record<string, unknown>;
}

function differences(
  one: Readonly<Record<string, unknown>>,
  other: Readonly<Record<string, unknown>>,
): readonly string[] {
  const keys = [...new Set([...Object.keys(one), ...Object.keys(other)])];
  return keys.filter((key) => !isDeepStrictEqual(one[key], other[key]));
}

function ifMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
  return undefined;
}
