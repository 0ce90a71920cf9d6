import { appendFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { RunCheckpoint, RunMetrics } from "../../training/index.js";
import { JsonLines } from "../../training/json-lines.node.js";
import {
  type ChangedSetting,
  type CheckpointRecord,
  changedSettings,
  RunLog,
} from "../../training/run-log.node.js";
import { wrongField } from "../../wire/index.js";
import type { BestWeights } from "./best-weights.js";
import type { TrainingLogger } from "./logger.js";
import type { RunWarning } from "./warnings.js";

/** The name of the line in `checkpoints.jsonl` that says which weights are the best; the last one counts. */
const BEST = "best";

/** How a run is laid out, which the files need to know. */
export interface RunFolderOptions {
  readonly config: Readonly<Record<string, unknown>>;
  readonly stepsPerEpoch: number;
}

/** Settings that may differ when a run resumes with more steps. */
const CHANGES_WITH_STEPS: ReadonlySet<string> = new Set([
  "num_epochs",
  "steps",
  "warmup_steps",
  "eval_every",
]);

function isLonger(changed: readonly ChangedSetting[]): boolean {
  const steps = changed.find(({ name }) => name === "steps");
  return (
    steps !== undefined &&
    Number(steps.now) > Number(steps.before) &&
    changed.every(({ name }) => CHANGES_WITH_STEPS.has(name))
  );
}

/** Settings that failed before the first checkpoint may be put right. */
function isBegun(folder: string): Promise<boolean> {
  return isFilled(join(folder, "checkpoints.jsonl"));
}

async function isFilled(path: string): Promise<boolean> {
  return ((await stat(path).catch(() => undefined))?.size ?? 0) > 0;
}

const warningsFile = ({ folder }: RunLog) => join(folder, "warnings.jsonl");

function describeChange({ name, before, now }: ChangedSetting): string {
  const isShort = [before, now].every((value) => typeof value !== "object" || value === null);
  return isShort ? `${name} was ${JSON.stringify(before)}, is ${JSON.stringify(now)}` : name;
}

/**
 * A run on disk in the Python cookbook's files. There a checkpoint is counted in epochs and batches of an epoch, so that
 * its own loop would go on at the same batch; here it is the number of steps.
 */
export class RunFolder {
  readonly #log: RunLog;
  readonly #options: RunFolderOptions;
  readonly #resumable: RunCheckpoint[] = [];
  #notes: Promise<unknown> = Promise.resolve();
  /** Warnings of earlier processes. */
  readonly warnings: readonly RunWarning[];
  /** Made with the first warning. */
  #warningLines: Promise<JsonLines> | undefined;

  private constructor(log: RunLog, options: RunFolderOptions, warnings: JsonLines | undefined) {
    this.#log = log;
    this.#options = options;
    this.warnings = (warnings?.initial ?? []) as unknown as readonly RunWarning[];
    this.#warningLines = warnings && Promise.resolve(warnings);
    for (const record of log.resumableCheckpoints()) this.#resumable.push(this.#fromRecord(record));
  }

  /** Opens the folder of a run, or makes it. One of a run with other settings is refused. */
  static async open(folder: string, options: RunFolderOptions): Promise<RunFolder> {
    const { config } = options;
    const changed = await changedSettings(folder, config);
    const isOther = changed.length > 0 && !isLonger(changed);
    if (isOther && (await isBegun(folder))) {
      throw wrongField(
        "folder",
        `must be that of this run or a new one: the run in ${folder} has other settings (${changed.map(describeChange).join("; ")})`,
      );
    }
    const log = await RunLog.open(folder, { config, replaceConfig: true });
    try {
      const path = warningsFile(log);
      if (isOther) await rm(path, { force: true });
      return new RunFolder(log, options, (await isFilled(path)) ? await JsonLines.open(path) : undefined);
    } catch (error) {
      await log.close();
      throw error;
    }
  }

  get path(): string {
    return this.#log.folder;
  }

  /** Where a backend with temporary data keeps the run's weights. */
  get weightsPath(): string {
    return join(this.path, "weights");
  }

  get lastMetricsStep(): number | undefined {
    return this.#log.lastMetricsStep;
  }

  resumableCheckpoints(): readonly RunCheckpoint[] {
    return this.#resumable;
  }

  /** State that was saved with a checkpoint. */
  extraOf(checkpoint: RunCheckpoint): Readonly<Record<string, unknown>> {
    return this.#log.checkpoints.findLast(({ statePath }) => statePath === checkpoint.statePath)?.extra ?? {};
  }

  async logMetrics(metrics: RunMetrics, step: number): Promise<void> {
    const entries = Object.entries(metrics);
    // A person who reads the file looks for the step first, and for what was measured behind it.
    const sorted = [
      ...entries.filter(([name]) => !name.includes("/")),
      ...entries.filter(([name]) => name.includes("/")),
    ];
    await this.#log.logMetrics({ time: Date.now() / 1000, ...Object.fromEntries(sorted) }, step);
  }

  async logCheckpoint(checkpoint: RunCheckpoint, extra: Readonly<Record<string, unknown>>): Promise<void> {
    const { batch, rolling, ...rest } = checkpoint;
    await this.#log.logCheckpoint({
      ...rest,
      ...this.#place(batch),
      extra: { ...extra, ...(rolling ? { rolling } : {}) },
    });
    this.#resumable.push(checkpoint);
  }

  /** Without a state: a run continues from the latest weights, not from the best. */
  async logBest({ batch, samplerPath, metric, value }: BestWeights): Promise<void> {
    const extra = { metric, value };
    await this.#log.logCheckpoint({ name: BEST, ...this.#place(batch), samplerPath, extra });
  }

  /** The best weights so far. */
  best(): BestWeights | undefined {
    const record = this.#log.checkpoints.findLast(({ name }) => name === BEST);
    if (record?.samplerPath === undefined) return undefined;
    const { metric, value } = record.extra as { metric: string; value: number };
    return { batch: this.#batchOf(record), samplerPath: record.samplerPath, metric, value };
  }

  /** Adds a line to `warnings.jsonl`. */
  async logWarning(warning: RunWarning): Promise<void> {
    this.#warningLines ??= JsonLines.open(warningsFile(this.#log));
    await (await this.#warningLines).append({ ...warning });
  }

  /** Every line of `metrics.jsonl`. */
  readMetrics(): Promise<readonly RunMetrics[]> {
    return this.#log.readMetrics();
  }

  /** The latest value of each metric. */
  async latestMetrics(): Promise<RunMetrics> {
    return Object.assign({}, ...(await this.readMetrics()));
  }

  /** The first value of each metric. */
  async firstMetrics(): Promise<RunMetrics> {
    return Object.assign({}, ...(await this.readMetrics()).toReversed());
  }

  /** Notes go to `logs.log`; metrics are written by the run itself. */
  get logger(): TrainingLogger {
    return {
      config: () => {},
      metrics: () => {},
      note: (text) => {
        const line = `${new Date().toISOString()} ${text}\n`;
        this.#notes = this.#notes.then(() => appendFile(join(this.path, "logs.log"), line));
        return this.#notes.then(() => {});
      },
      close: () => {},
    };
  }

  async close(): Promise<void> {
    await this.#notes.catch(() => {});
    await this.#warningLines?.then((file) => file.close()).catch(() => {});
    await this.#log.close();
  }

  #place(batch: number): { epoch: number; batch: number } {
    const { stepsPerEpoch } = this.#options;
    return { epoch: Math.floor(batch / stepsPerEpoch), batch: batch % stepsPerEpoch };
  }

  #batchOf({ epoch = 0, batch = 0 }: CheckpointRecord): number {
    return epoch === 0 ? batch : epoch * this.#options.stepsPerEpoch + batch;
  }

  #fromRecord(record: RunCheckpoint & CheckpointRecord): RunCheckpoint {
    const { name, statePath, samplerPath, final, extra } = record;
    return {
      name,
      batch: this.#batchOf(record),
      statePath,
      ...(samplerPath === undefined ? {} : { samplerPath }),
      ...(final === undefined ? {} : { final }),
      ...(extra?.["rolling"] === true ? { rolling: true } : {}),
    };
  }
}
