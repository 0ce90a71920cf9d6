import type { RestClient, ServiceClient, TrainingClient } from "../../clients/index.js";
import { messageOf, NotFoundError, TinkerError } from "../../errors.js";
import { inSpan } from "../../session/index.js";
import {
  type RecoveryLog,
  type RunCheckpoint,
  type RunEvent,
  type RunMetrics,
  type RunWithRecoveryResult,
  runWithRecovery,
  type StepContext,
} from "../../training/index.js";
import type { BestKeeper } from "./best-weights.js";
import { type EvaluationPlan, isEvaluated, startEvaluation } from "./evaluation.js";
import { findStart } from "./find-model.js";
import type { TrainingLogger } from "./logger.js";
import type { RunFindings } from "./run-findings.js";
import type { RunFolder } from "./run-folder.node.js";
import type { FinishedRun, TrainingSpec } from "./run-training.js";
import { savePlan } from "./save-plan.js";
import type { RunSpending } from "./spending.js";
import type { RunTimeline } from "./timeline.node.js";
import type { RunWarning } from "./warnings.js";

/** Passed to each step besides its training client. */
export interface TrainingContext<State> extends StepContext<ServiceClient> {
  /** State that the step before returned; undefined at the first step, or if none was returned. */
  readonly state: State | undefined;
  /** Keeps plain JSON for the next step, also after a resume from a checkpoint. */
  readonly keepState: (state: State) => void;
  /** Says how many tokens the step trains on, for checkpoints every so many. */
  readonly countTokens: (count: number) => void;
  /** Ends the run with a sentence when the loss is not a number: another try would only repeat it. */
  readonly checkLoss: (loss: number) => void;
  /** For people who watch. */
  readonly note: (text: string) => void;
  /** Warns of something wrong with the run. */
  readonly warn: (warning: Omit<RunWarning, "step">) => void;
}

/** Dependencies of the loop. */
export interface LoopParts<State> {
  readonly spec: TrainingSpec<State>;
  readonly folder: RunFolder | undefined;
  readonly logger: Required<TrainingLogger>;
  readonly rest: RestClient;
  readonly best: BestKeeper | undefined;
  readonly spending: RunSpending;
  readonly findings: RunFindings;
  readonly timeline: RunTimeline | undefined;
}

/** State after a number of steps, saved with their checkpoint. */
interface Progress<State> {
  readonly tokens: number;
  readonly state?: State | undefined;
}

const NO_PROGRESS = { tokens: 0 };

/** Trains the steps of a run and watches over them: restores, checkpoints, evaluations, loggers. */
export class TrainingLoop<State> {
  readonly #parts: LoopParts<State>;
  readonly #evaluation: EvaluationPlan<State>;
  readonly #checkpoints: RunCheckpoint[] = [];
  /** By the number of steps done. */
  readonly #progress = new Map<number, Progress<State>>([[0, NO_PROGRESS]]);
  /** Saved only to bridge the time to the next checkpoint, which is there. */
  #obsolete: RunCheckpoint | undefined;
  #badLoss: TinkerError | undefined;
  /** The latest started one. */
  #step = 0;
  #evaluating: Promise<unknown> = Promise.resolve();
  /** Aborted when the run must end early, with a checkpoint. */
  readonly #stop = new AbortController();
  /** The latest line, for the folder and the loggers. */
  #line: { readonly step: number; readonly metrics: RunMetrics } | undefined;
  /** Why the run ended early. */
  paused: FinishedRun["paused"];
  readonly metrics: Record<string, RunMetrics[string]> = {};
  /** The first value of each metric that this process saw. */
  readonly firstMetrics: Record<string, RunMetrics[string]> = {};

  constructor(parts: LoopParts<State>) {
    this.#parts = parts;
    const { settings, options, heldOut } = parts.spec;
    this.#evaluation = {
      every: settings.evaluateEvery,
      steps: settings.steps,
      heldOut,
      evaluators: options.evaluators ?? [],
      best: parts.best,
      service: options.service,
      folder: options.folder,
      ttlSeconds: settings.save.ttlSeconds,
    };
  }

  async run(): Promise<RunWithRecoveryResult> {
    const { options, settings } = this.#parts.spec;
    const userMetadata = { renderer_name: settings.rendererName, ...runName(options.folder) };
    const { signal, pauseSignal } = options;
    const stops = [pauseSignal, this.#stop.signal].filter((each) => each !== undefined);
    const supervised = runWithRecovery<ServiceClient, TrainingClient>({
      service: () => options.service.clone(),
      start: async (service) => {
        const { startFrom, model: baseModel, rank, seed, trainAttn, trainMlp, trainUnembed } = settings;
        const lora = { rank, seed, trainAttn, trainMlp, trainUnembed };
        if (startFrom === undefined)
          return this.#keep(
            await service.createLoraTrainingClient({ baseModel, ...lora, userMetadata, signal }),
          );
        const path = await findStart(options, startFrom, signal);
        return this.#keep(await service.createTrainingClientFromState(path, { userMetadata, signal }));
      },
      restore: async (service, { statePath }) =>
        this.#keep(
          await service.createTrainingClientFromStateWithOptimizer(statePath, { userMetadata, signal }),
        ),
      measure: (training, batch, context) => this.#measure(training, batch, context),
      step: async (training, step, context) => {
        await this.#trainInSpan(training, step, context);
        this.#parts.spending.endStep(step);
        this.#watchBudget();
        this.#watchDivergence();
      },
      steps: settings.steps,
      checkpointAt: savePlan(settings.save, { tokensAfter: (batch) => this.#after(batch).tokens }),
      log: this.#log(),
      onEvent: (event) => this.#onEvent(event),
      // A server may refuse to go on after such a loss, which another try would only repeat.
      policy: { shouldRestore: () => (this.#badLoss === undefined ? undefined : false) },
      signal,
      pauseSignal: AbortSignal.any(stops),
    });
    const onPause = () => {
      this.paused ??= { by: "signal", reason: "make the same call to continue" };
      void this.#parts.logger.note(this.#pausing());
    };
    if (pauseSignal?.aborted) this.paused = { by: "signal", reason: "make the same call to continue" };
    pauseSignal?.addEventListener("abort", onPause, { once: true });
    return supervised
      .catch((error: unknown) => {
        throw this.#badLoss ?? this.#explainMissing(error);
      })
      .finally(() => pauseSignal?.removeEventListener("abort", onPause));
  }

  /** Resolves when the requests of a step are sent; its span ends when its metrics are known. */
  #trainInSpan(training: TrainingClient, step: number, context: StepContext<ServiceClient>): Promise<void> {
    this.#parts.timeline?.beginStep(step);
    const pending: Promise<unknown>[] = [];
    const watched: StepContext<ServiceClient> = {
      ...context,
      addMetrics: (metrics) => {
        pending.push(Promise.resolve(metrics));
        context.addMetrics(metrics);
      },
    };
    return new Promise((resolve, reject) => {
      const attributes = { "tinkerts.step": step };
      inSpan("step", { category: "step", attributes }, async () => {
        await this.#parts.spec.step(training, step, this.#contextOf(step, watched)).then(resolve, reject);
        await Promise.all(pending);
      }).catch(() => {});
    });
  }

  /** The line of a step: its metrics, what the run has used, and what is wrong with them. */
  #lineOf(metrics: RunMetrics, step: number): RunMetrics {
    if (this.#line?.step !== step) {
      const { spending, findings, timeline } = this.#parts;
      const all = { ...metrics, ...timeline?.takeSeconds(), ...spending.metricsAt(step) };
      this.#line = { step, metrics: findings.look(all, step) };
    }
    return this.#line.metrics;
  }

  /** Ends the run before a step that its budget does not allow. */
  #watchBudget(): void {
    const { spec, spending } = this.#parts;
    if (this.#stop.signal.aborted) return;
    const reason = spending.whyOver(spec.estimate, spec.settings.steps);
    if (reason === undefined) return;
    this.paused ??= { by: "budget", reason };
    this.#stop.abort();
  }

  /** Ends a run that has diverged, if that is wanted. */
  #watchDivergence(): void {
    const { spec, findings } = this.#parts;
    const { divergence } = findings;
    if (spec.options.stopOn !== "divergence" || divergence === undefined) return;
    const saved = this.#parts.folder?.resumableCheckpoints() ?? this.#checkpoints;
    // A rolling one is there until the next.
    const good = saved.findLast(
      ({ batch, rolling }, index) =>
        (batch < divergence.step || batch === 0) && (!rolling || index === saved.length - 1),
    );
    const from = good === undefined ? "" : ` The last checkpoint before is ${good.name}: ${good.statePath}.`;
    this.paused ??= {
      by: "divergence",
      reason: `The run has diverged: ${divergence.message}.${from} Begin another one with ${divergence.proposal}`,
    };
    this.#stop.abort();
  }

  #pausing(): string {
    const waiting = this.#parts.spec.waitingFor?.();
    const why = waiting === undefined ? "" : `, which waits for ${waiting}`;
    return `Pausing after step ${this.#step + 1}${why}; then a checkpoint is saved`;
  }

  /** Whether nothing is left to train after this checkpoint: one that ended early was planned to be as long as it is now. */
  isDone(checkpoint: RunCheckpoint): boolean {
    const { folder, spec } = this.#parts;
    const planned = folder?.extraOf(checkpoint)["planned_steps"] ?? checkpoint.batch;
    return checkpoint.final === true && Number(planned) >= spec.settings.steps;
  }

  /** The checkpoint, once the server has said that it is there. */
  async found(checkpoint: RunCheckpoint): Promise<RunCheckpoint> {
    const { rest, spec } = this.#parts;
    await rest
      .getWeightsInfo(checkpoint.statePath, { signal: spec.options.signal })
      .catch((error: unknown) => {
        throw this.#explainMissing(error);
      });
    return checkpoint;
  }

  /** A backend whose data is temporary keeps what a run folder will need again in that folder. */
  async #keep(training: TrainingClient): Promise<TrainingClient> {
    const { folder, spec } = this.#parts;
    this.#watchBudget();
    this.#watchDivergence();
    if (folder !== undefined)
      await spec.options.service.runData?.keep?.(training.modelId, folder.weightsPath);
    return training;
  }

  /** A folder whose checkpoints the server does not know was written with another server, or another data folder. */
  #explainMissing(error: unknown): unknown {
    const { folder } = this.#parts;
    const saved = folder?.resumableCheckpoints().at(-1);
    if (!(error instanceof NotFoundError) || saved === undefined) return error;
    return new TinkerError(
      `The run in ${folder?.path} cannot continue: this server does not have its weights, ${saved.statePath}. ` +
        "Use the server that it was trained on (the built-in backend: with the same dataDir), or another folder for a new run.",
      { cause: error },
    );
  }

  /** The folder, which learns with each checkpoint how far the run was. */
  #log(): RecoveryLog | undefined {
    const { folder } = this.#parts;
    if (folder === undefined) return undefined;
    return {
      resumableCheckpoints: () => folder.resumableCheckpoints(),
      get lastMetricsStep() {
        return folder.lastMetricsStep;
      },
      logMetrics: async (metrics, step) => {
        const line = this.#lineOf(metrics, step);
        await this.#parts.findings.written;
        await folder.logMetrics(line, step);
      },
      logCheckpoint: (checkpoint) => {
        const { tokens, state } = this.#after(checkpoint.batch);
        const extra = {
          elapsed_tokens: tokens,
          planned_steps: this.#parts.spec.settings.steps,
          ...(state === undefined ? {} : { loop_state: state }),
        };
        // One that is gone back to is written down again, and knows more than this process.
        return folder.logCheckpoint(checkpoint, { ...extra, ...folder.extraOf(checkpoint) });
      },
    };
  }

  #after(batch: number): Progress<State> {
    return this.#progress.get(batch) ?? NO_PROGRESS;
  }

  #contextOf(step: number, context: StepContext<ServiceClient>): TrainingContext<State> {
    this.#step = step;
    const { tokens, state } = this.#after(step);
    const keep = (change: Partial<Progress<State>>) =>
      this.#progress.set(step + 1, { tokens, ...this.#progress.get(step + 1), ...change });
    this.#progress.set(step + 1, { tokens });
    return {
      ...context,
      state,
      keepState: (next) => void keep({ state: next }),
      countTokens: (count) => void keep({ tokens: tokens + count }),
      checkLoss: (loss) => {
        if (Number.isFinite(loss)) return;
        this.#parts.findings.notANumber(step, loss);
        this.#badLoss = this.#notANumber(step, loss);
        throw this.#badLoss;
      },
      note: (text) => void this.#parts.logger.note(text),
      warn: (warning) => this.#parts.findings.give(step, warning),
    };
  }

  async #measure(
    training: TrainingClient,
    batch: number,
    context: StepContext<ServiceClient>,
  ): Promise<void> {
    const plan = this.#evaluation;
    const { spec, timeline } = this.#parts;
    timeline?.beginStep(batch);
    const isDue = isEvaluated(batch, plan);
    const isOver = isDue && (await this.#evaluate(training, batch, context));
    if (isOver || batch === plan.steps || spec.prepareStep === undefined) return;
    if (await spec.prepareStep(training, batch, this.#contextOf(batch, context))) return;
    context.end();
    // The last weights are always measured.
    if (!isDue && isEvaluated(plan.steps, plan)) await this.#evaluate(training, batch, context);
  }

  /** Whether so many evaluations brought nothing better that the run ends. */
  async #evaluate(
    training: TrainingClient,
    batch: number,
    { signal, end, addMetrics }: StepContext<ServiceClient>,
  ): Promise<boolean> {
    const plan = this.#evaluation;
    const { best } = plan;
    // One at a time: training may run ahead of an evaluation, and not of two.
    await this.#evaluating;
    const evaluating = startEvaluation(training, { batch, state: this.#after(batch).state }, plan, signal);
    this.#evaluating = evaluating.catch(() => {});
    addMetrics(evaluating);
    if (best?.patience === undefined) return false;
    await evaluating;
    const isOver = best.isOver(batch, plan.every);
    if (isOver) end();
    return isOver;
  }

  #notANumber(step: number, loss: number): TinkerError {
    const { learningRate } = this.#parts.spec.settings;
    // The weights at this step gave the bad loss.
    const good = this.#checkpoints.findLast(({ batch }) => batch < step || batch === 0);
    const where = good === undefined ? "" : ` The last good checkpoint is ${good.name}: ${good.statePath}.`;
    return new TinkerError(
      `The loss of step ${step + 1} is ${loss}, so the run has ended.${where} A learning rate below ${learningRate} or ` +
        "adam: { gradClipNorm: 1 } usually helps.",
    );
  }

  #onEvent(event: RunEvent): void {
    const { folder, logger } = this.#parts;
    const note = (text: string) => void logger.note(text);
    switch (event.type) {
      case "step":
        this.#logMetrics(event.metrics, event.step, event.repeated);
        this.#parts.timeline?.endStep(event.step);
        this.#deleteObsolete(event.step);
        break;
      case "measured":
        this.#logMetrics(event.metrics, event.batch, false);
        break;
      case "checkpoint":
        this.#obsolete = this.#checkpoints.at(-1)?.rolling ? this.#checkpoints.at(-1) : this.#obsolete;
        this.#checkpoints.push(event.checkpoint);
        this.#forgetBefore(event.checkpoint.batch);
        if (event.checkpoint.final) this.#deleteObsolete(Number.POSITIVE_INFINITY);
        break;
      case "restored":
        if (folder !== undefined) this.#progress.set(event.checkpoint.batch, savedProgress(folder, event));
        if (this.#checkpoints.length === 0) this.#checkpoints.push(event.checkpoint);
        note(
          `Going on after ${event.checkpoint.batch} ${event.checkpoint.batch === 1 ? "step" : "steps"}, from ${event.checkpoint.statePath}`,
        );
        break;
      case "failed":
        this.#noteFailure(event);
        break;
      case "restoring":
        note(`Trying again in ${(event.delayMs / 1000).toFixed(1)} s`);
        break;
      case "started":
      case "gave_up":
      case "paused":
      case "finished":
        break;
      default:
        event satisfies never;
    }
  }

  /** A failure that ends the run is thrown, so the screen shows it anyway; the folder's log would not have it. */
  #noteFailure({ step, reason, error }: Extract<RunEvent, { type: "failed" }>): void {
    const { folder, logger } = this.#parts;
    const log = reason === "fatal" ? folder?.logger : logger;
    void log?.note?.(`Step ${step + 1} failed (${reason}): ${messageOf(error)}`);
  }

  /** A run goes back to checkpoints alone. */
  #forgetBefore(batch: number): void {
    const saved = new Set(this.#checkpoints.map((checkpoint) => checkpoint.batch));
    for (const each of this.#progress.keys())
      if (each < batch && !saved.has(each)) this.#progress.delete(each);
  }

  #logMetrics(known: RunMetrics, step: number, isRepeated: boolean): void {
    const metrics = this.#lineOf(known, step);
    this.#line = undefined;
    for (const [name, value] of Object.entries(metrics)) this.firstMetrics[name] ??= value;
    Object.assign(this.metrics, metrics);
    if (!isRepeated) void this.#parts.logger.metrics(metrics, step);
  }

  /** Not before the weights of the newer one have given a loss that is a number. */
  #deleteObsolete(step: number): void {
    const newest = this.#checkpoints.at(-1);
    if (this.#obsolete === undefined || newest === undefined || step < newest.batch) return;
    const { statePath } = this.#obsolete;
    this.#obsolete = undefined;
    // A checkpoint that cannot be deleted expires.
    this.#parts.rest.deleteCheckpoint(statePath).catch(() => {});
  }
}

function savedProgress<State>(
  folder: RunFolder,
  { checkpoint }: { readonly checkpoint: RunCheckpoint },
): Progress<State> {
  const { elapsed_tokens: tokens, loop_state: state } = folder.extraOf(checkpoint);
  return { tokens: typeof tokens === "number" ? tokens : 0, state: state as State | undefined };
}

/** A server that lists its runs shows this one by the name of its folder. */
function runName(folder: string | undefined): { name?: string } {
  const name = folder?.split(/[\\/]/).findLast((part) => !/^\.{0,2}$/.test(part));
  return name === undefined ? {} : { name };
}
