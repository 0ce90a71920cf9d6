import { TinkerError } from "../../errors.js";
import type { RunCheckpoint, RunMetrics } from "../../training/index.js";
import { BestKeeper, type BestWeights } from "./best-weights.js";
import { consoleLogger } from "./console-logger.js";
import { combineLoggers } from "./logger.js";
import type { TrainSupervisedOptions } from "./options.js";
import { type PreparedRun, prepareRun } from "./prepare-run.js";
import type { RunFolder } from "./run-folder.node.js";
import { SupervisedLoop } from "./supervised-loop.js";

/** A run that has ended, or was paused. */
export interface SupervisedRun {
  /** False when `pauseSignal` ended it early. */
  readonly isFinished: boolean;
  /** The trained weights, to sample from: `service.createSamplingClient({ modelPath: run.samplerPath })`. */
  readonly samplerPath: string;
  /** The same with the optimizer, to train on from. */
  readonly statePath: string;
  /** Steps done. */
  readonly steps: number;
  /** The latest value of each metric. */
  readonly metrics: RunMetrics;
  /** The best of the weights that were evaluated, where they are kept. */
  readonly best?: BestWeights | undefined;
  /** How often the run was restored after a failure. */
  readonly restores: number;
  /** Settings and counts, as in `config.json`. */
  readonly config: Readonly<Record<string, unknown>>;
}

/**
 * Fine-tunes a model on conversations. Every batch is trained exactly once, whatever happens to the server or to this
 * process: the same call with the same folder goes on where the last one stopped.
 */
export async function trainSupervised(options: TrainSupervisedOptions): Promise<SupervisedRun> {
  const prepared = await prepareRun(options);
  await using _data = prepared.data;
  const { config, description } = prepared;
  const tokens = new Map([[0, 0]]);
  const folder = await openFolder(options.folder, prepared, tokens);
  const logger = combineLoggers([
    ...(options.loggers ?? [consoleLogger()]),
    ...(folder === undefined ? [] : [folder.logger]),
  ]);
  try {
    await logger.config(config);
    await logger.note(description);
    const rest = options.service.createRestClient();
    const best =
      prepared.settings.best &&
      new BestKeeper(prepared.settings.best, {
        rest,
        best: folder?.best(),
        record: async (weights) => folder?.logBest(weights),
      });
    const loop = new SupervisedLoop({ options, prepared, folder, logger, rest, best, tokens });
    const before = await folder?.latestMetrics();
    // One that ended early has its final checkpoint before the last step.
    const reached = folder?.resumableCheckpoints().at(-1);
    const { checkpoint, restores } =
      reached?.final === true ? { checkpoint: reached, restores: 0 } : await loop.run();
    const isFinished = checkpoint.final === true;
    if (isFinished) await best?.keepForEver();
    const { samplerPath, statePath } = savedPaths(checkpoint);
    await logger.note(endingOf({ isFinished, steps: checkpoint.batch, samplerPath }));
    return {
      isFinished,
      samplerPath,
      statePath,
      steps: checkpoint.batch,
      metrics: { ...before, ...loop.metrics },
      best: best?.best,
      restores,
      config,
    };
  } finally {
    await logger.close();
    await folder?.close();
  }
}

async function openFolder(
  path: string | undefined,
  { config, settings }: PreparedRun,
  tokens: ReadonlyMap<number, number>,
): Promise<RunFolder | undefined> {
  if (path === undefined) return undefined;
  const { RunFolder } = await import("./run-folder.node.js");
  const { stepsPerEpoch } = settings;
  return RunFolder.open(path, { config, stepsPerEpoch, tokensAfter: (batch) => tokens.get(batch) ?? 0 });
}

function savedPaths({ name, samplerPath, statePath }: RunCheckpoint): {
  samplerPath: string;
  statePath: string;
} {
  if (samplerPath === undefined) throw new TinkerError(`Checkpoint ${name} has no weights to sample from.`);
  return { samplerPath, statePath };
}

function endingOf({
  isFinished,
  steps,
  samplerPath,
}: {
  isFinished: boolean;
  steps: number;
  samplerPath: string;
}) {
  return isFinished
    ? `Trained ${steps} steps: ${samplerPath}`
    : `Paused after ${steps} steps, with a checkpoint: the same call goes on from there`;
}
