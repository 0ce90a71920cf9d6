import type { TrainingClient } from "../../clients/index.js";
import { TinkerError } from "../../errors.js";
import type { RunCheckpoint, RunMetrics } from "../../training/index.js";
import type { RunEstimate } from "../costs/index.js";
import { BestKeeper, type BestWeights } from "./best-weights.js";
import { beforeAndAfter, consoleLogger } from "./console-logger.js";
import type { MeasureWeights } from "./evaluation.js";
import { combineLoggers } from "./logger.js";
import type { RunOptions } from "./options.js";
import { RunFindings } from "./run-findings.js";
import type { RunFolder } from "./run-folder.node.js";
import type { RunSettings } from "./settings.js";
import { RunSpending } from "./spending.js";
import type { RunTimeline } from "./timeline.node.js";
import { type TrainingContext, TrainingLoop } from "./training-loop.js";

/** Plan of a run: its settings and counts, decided without training. */
export interface RunPlan {
  /** Settings and counts, as `config.json` would have them. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Settings and counts as text, one line for each. */
  readonly description: string;
  /** Tokens and dollars that the run will use; absent where nothing is known of them. */
  readonly estimate?: RunEstimate | undefined;
}

/** A run that has ended, or was paused. */
export interface FinishedRun {
  /** False when `pauseSignal` or the budget ended it early. */
  readonly isFinished: boolean;
  /** Why the run ended early, with a checkpoint to resume from; absent if it is finished. */
  readonly paused?: { readonly by: "signal" | "budget" | "divergence"; readonly reason: string } | undefined;
  /** The trained weights, to sample from: `service.createSamplingClient({ modelPath: run.samplerPath })`. */
  readonly samplerPath: string;
  /** Path of the weights with the optimizer state, to continue training from. */
  readonly statePath: string;
  /** Number of steps trained. */
  readonly steps: number;
  /** The latest value of each metric. */
  readonly metrics: RunMetrics;
  /** The best of the weights that were evaluated, where they are kept. */
  readonly best?: BestWeights | undefined;
  /** Number of times the run was restored after a failure. */
  readonly restores: number;
  /** Settings and counts, as in `config.json`. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** A kind of training: its data, steps and measures. */
export interface TrainingSpec<State> extends RunPlan {
  readonly options: RunOptions;
  readonly settings: RunSettings;
  /** Whether rewards decide what is learned. Default: no. */
  readonly hasRewards?: boolean | undefined;
  /** Measures on held-out data, made with the evaluators. */
  readonly heldOut?: MeasureWeights<State> | undefined;
  /**
   * Prepares the data that `step`, called next, trains on. Returns false if there are none: the run ends here. Default:
   * there always are.
   */
  prepareStep?(training: TrainingClient, step: number, context: TrainingContext<State>): Promise<boolean>;
  /** Says what the current step waits for; undefined if only for the server. */
  waitingFor?(): string | undefined;
  /**
   * Trains one step. The same number and state mean the same data whenever it is called. It sends its requests in order
   * and may return before they are done.
   */
  step(training: TrainingClient, step: number, context: TrainingContext<State>): Promise<void>;
}

/**
 * Trains from where the run stands to its end. Every step is trained exactly once, even if the server or
 * this process crashes: the same call with the same folder continues where the last one stopped.
 */
export async function runTraining<State>(spec: TrainingSpec<State>): Promise<FinishedRun> {
  const { folder, trace } = spec.options;
  if (folder === undefined && trace === undefined) return trainSpec(spec, undefined);
  const { RunTimeline } = await import("./timeline.node.js");
  const timeline = new RunTimeline({ folder, trace });
  try {
    return await timeline.during(() => trainSpec(spec, timeline));
  } finally {
    timeline.close();
  }
}

async function trainSpec<State>(
  spec: TrainingSpec<State>,
  timeline: RunTimeline | undefined,
): Promise<FinishedRun> {
  const { options, settings, config, description } = spec;
  const folder = await openFolder(spec);
  const spending = await openSpending(spec).catch(async (error: unknown) => {
    await folder?.close();
    throw error;
  });
  const logger = combineLoggers([
    ...(options.loggers ?? [consoleLogger()]),
    ...(folder === undefined ? [] : [folder.logger]),
  ]);
  try {
    await logger.config(config);
    await logger.note(description);
    for (const remark of spending.remarks) await logger.note(remark);
    const findings = new RunFindings(spec, { folder, logger });
    await findings.begin();
    const rest = options.service.createRestClient();
    const best =
      settings.best &&
      new BestKeeper(settings.best, {
        rest,
        best: folder?.best(),
        record: async (weights) => folder?.logBest(weights),
      });
    const loop = new TrainingLoop({ spec, folder, logger, rest, best, spending, findings, timeline });
    const before = await folder?.latestMetrics();
    // One that ended early has its final checkpoint before the last step.
    const reached = folder?.resumableCheckpoints().at(-1);
    if (folder !== undefined) await options.service.runData?.open(folder.weightsPath);
    const isDone = reached !== undefined && loop.isDone(reached);
    const { checkpoint, restores } = isDone
      ? { checkpoint: await loop.found(reached), restores: 0 }
      : await loop.run();
    const isFinished = checkpoint.final === true;
    if (isFinished) await best?.keepForEver();
    const { samplerPath, statePath } = savedPaths(checkpoint);
    const trained = `${checkpoint.batch} ${checkpoint.batch === 1 ? "step" : "steps"}`;
    // What was sent again after the last line counts too.
    const metrics = { ...before, ...loop.metrics, ...(isDone ? {} : spending.metrics()) };
    const gain = beforeAndAfter((await folder?.firstMetrics()) ?? loop.firstMetrics, metrics);
    await logger.note(
      isFinished
        ? [`${isDone ? "Already trained" : "Trained"} ${trained}`, gain ?? []].flat().join(": ")
        : `Paused after ${trained}, with a checkpoint: ${loop.paused?.reason ?? "make the same call to continue"}`,
    );
    return {
      isFinished,
      ...(isFinished ? {} : { paused: loop.paused }),
      samplerPath,
      statePath,
      steps: checkpoint.batch,
      metrics,
      best: best?.best,
      restores,
      config,
    };
  } finally {
    // The result is valid even if an evaluator cannot be closed.
    await Promise.allSettled((options.evaluators ?? []).map(async (evaluator) => evaluator.close?.()));
    await logger.close();
    spending.close();
    await folder?.close();
  }
}

function openSpending({
  options: { service, prices, budget, folder },
  settings: { model },
}: Pick<TrainingSpec<never>, "options" | "settings">): Promise<RunSpending> {
  return RunSpending.open({ service, model, prices, budget, folder });
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
