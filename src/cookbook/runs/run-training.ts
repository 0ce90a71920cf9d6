import type { TrainingClient } from "../../clients/index.js";
import { TinkerError } from "../../errors.js";
import type { RunCheckpoint, RunMetrics } from "../../training/index.js";
import { BestKeeper, type BestWeights } from "./best-weights.js";
import { consoleLogger } from "./console-logger.js";
import type { MeasureWeights } from "./evaluation.js";
import { combineLoggers } from "./logger.js";
import type { RunOptions } from "./options.js";
import type { RunFolder } from "./run-folder.node.js";
import type { RunSettings } from "./settings.js";
import { type TrainingContext, TrainingLoop } from "./training-loop.js";

/** What a run would do, for `tinkerts train ... --dry-run` and whoever wants to know beforehand. */
export interface RunPlan {
  /** Settings and counts, as they would stand in `config.json`. */
  readonly config: Readonly<Record<string, unknown>>;
  /** The same for people, a line for each. */
  readonly description: string;
}

/** A run that has ended, or was paused. */
export interface FinishedRun {
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

/** A kind of training: what makes a run besides that which all have. */
export interface TrainingSpec<State> extends RunPlan {
  readonly options: RunOptions;
  readonly settings: RunSettings;
  /** What is measured with the evaluators. */
  readonly heldOut?: MeasureWeights<State> | undefined;
  /**
   * Whether there is anything to train on at this step; without it the run ends here. What it finds out may be kept for
   * `step`, which is called next. Default: there always is.
   */
  hasWork?(training: TrainingClient, step: number, context: TrainingContext<State>): Promise<boolean>;
  /**
   * Trains one step. The same number and state mean the same data whenever it is called. It sends its requests in order
   * and may return before they are done.
   */
  step(training: TrainingClient, step: number, context: TrainingContext<State>): Promise<void>;
}

/**
 * Trains from where the run stands to its end. Every step is trained exactly once, whatever happens to the server or to
 * this process: the same call with the same folder goes on where the last one stopped.
 */
export async function runTraining<State>(spec: TrainingSpec<State>): Promise<FinishedRun> {
  const { options, settings, config, description } = spec;
  const folder = await openFolder(spec);
  const logger = combineLoggers([
    ...(options.loggers ?? [consoleLogger()]),
    ...(folder === undefined ? [] : [folder.logger]),
  ]);
  try {
    await logger.config(config);
    await logger.note(description);
    const rest = options.service.createRestClient();
    const best =
      settings.best &&
      new BestKeeper(settings.best, {
        rest,
        best: folder?.best(),
        record: async (weights) => folder?.logBest(weights),
      });
    const loop = new TrainingLoop({ spec, folder, logger, rest, best });
    const before = await folder?.latestMetrics();
    // One that ended early has its final checkpoint before the last step.
    const reached = folder?.resumableCheckpoints().at(-1);
    const { checkpoint, restores } =
      reached?.final === true ? { checkpoint: reached, restores: 0 } : await loop.run();
    const isFinished = checkpoint.final === true;
    if (isFinished) await best?.keepForEver();
    const { samplerPath, statePath } = savedPaths(checkpoint);
    const trained = `${checkpoint.batch} ${checkpoint.batch === 1 ? "step" : "steps"}`;
    await logger.note(
      isFinished
        ? `Trained ${trained}: ${samplerPath}`
        : `Paused after ${trained}, with a checkpoint: the same call goes on from there`,
    );
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
    // What is trained is none the worse for an evaluator that cannot be closed.
    await Promise.allSettled((options.evaluators ?? []).map(async (evaluator) => evaluator.close?.()));
    await logger.close();
    await folder?.close();
  }
}

async function openFolder({
  options: { folder },
  settings: { stepsPerEpoch },
  config,
}: Pick<TrainingSpec<never>, "options" | "settings" | "config">): Promise<RunFolder | undefined> {
  if (folder === undefined) return undefined;
  const { RunFolder } = await import("./run-folder.node.js");
  return RunFolder.open(folder, { config, stepsPerEpoch });
}

function savedPaths({ name, samplerPath, statePath }: RunCheckpoint): {
  samplerPath: string;
  statePath: string;
} {
  if (samplerPath === undefined) throw new TinkerError(`Checkpoint ${name} has no weights to sample from.`);
  return { samplerPath, statePath };
}
