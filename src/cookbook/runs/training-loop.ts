import type { RestClient, ServiceClient, TrainingClient } from "../../clients/index.js";
import { messageOf, TinkerError } from "../../errors.js";
import {
  type RecoveryLog,
  type RunCheckpoint,
  type RunEvent,
  type RunMetrics,
  type StepContext,
  type SupervisedRunResult,
  superviseRun,
} from "../../training/index.js";
import type { BestKeeper } from "./best-weights.js";
import { type EvaluationPlan, isEvaluated, startEvaluation } from "./evaluation.js";
import type { TrainingLogger } from "./logger.js";
import type { RunFolder } from "./run-folder.node.js";
import type { TrainingSpec } from "./run-training.js";
import { savePlan } from "./save-plan.js";

/** What a step may use besides its training client. */
export interface TrainingContext<State> extends StepContext<ServiceClient> {
  /** What the step before has kept; undefined at the first one, and where nothing was kept. */
  readonly state: State | undefined;
  /** Keeps plain JSON for the next step, which gets it also when the run goes on from a checkpoint. */
  readonly keepState: (state: State) => void;
  /** Says how many tokens the step trains on, for checkpoints every so many. */
  readonly countTokens: (count: number) => void;
  /** Ends the run with a sentence when the loss is not a number: another try would only repeat it. */
  readonly checkLoss: (loss: number) => void;
  /** For people who watch. */
  readonly note: (text: string) => void;
}

/** What the loop works with. */
export interface LoopParts<State> {
  readonly spec: TrainingSpec<State>;
  readonly folder: RunFolder | undefined;
  readonly logger: Required<TrainingLogger>;
  readonly rest: RestClient;
  readonly best: BestKeeper | undefined;
}

/** What is known after a number of steps, and saved with their checkpoint. */
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
  #evaluating: Promise<unknown> = Promise.resolve();
  readonly metrics: Record<string, RunMetrics[string]> = {};

  constructor(parts: LoopParts<State>) {
    this.#parts = parts;
    const { settings, options, heldOut } = parts.spec;
    this.#evaluation = {
      every: settings.evaluateEvery,
      steps: settings.steps,
      heldOut,
      evaluators: options.evaluators ?? [],
      best: parts.best,
      folder: options.folder,
      ttlSeconds: settings.save.ttlSeconds,
    };
  }

  async run(): Promise<SupervisedRunResult> {
    const { options, settings } = this.#parts.spec;
    const userMetadata = { renderer_name: settings.rendererName, ...runName(options.folder) };
    const { signal, pauseSignal } = options;
    const supervised = superviseRun<ServiceClient, TrainingClient>({
      service: () => options.service.clone(),
      start: (service) =>
        settings.startFrom === undefined
          ? service.createLoraTrainingClient({
              baseModel: settings.model,
              rank: settings.rank,
              seed: settings.seed,
              userMetadata,
              signal,
            })
          : service.createTrainingClientFromState(settings.startFrom, { userMetadata, signal }),
      restore: (service, { statePath }) =>
        service.createTrainingClientFromStateWithOptimizer(statePath, { userMetadata, signal }),
      measure: (training, batch, context) => this.#measure(training, batch, context),
      step: (training, step, context) =>
        this.#parts.spec.step(training, step, this.#contextOf(step, context)),
      steps: settings.steps,
      checkpointAt: savePlan(settings.save, { tokensAfter: (batch) => this.#after(batch).tokens }),
      log: this.#log(),
      onEvent: (event) => this.#onEvent(event),
      // A server may refuse to go on after such a loss, which another try would only repeat.
      policy: { shouldRestore: () => (this.#badLoss === undefined ? undefined : false) },
      signal,
      pauseSignal,
    });
    return supervised.catch((error: unknown) => {
      throw this.#badLoss ?? error;
    });
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
      logMetrics: (metrics, step) => folder.logMetrics(metrics, step),
      logCheckpoint: (checkpoint) => {
        const { tokens, state } = this.#after(checkpoint.batch);
        const extra = { elapsed_tokens: tokens, ...(state === undefined ? {} : { loop_state: state }) };
        // One that is gone back to is written down again, and knows more than this process.
        return folder.logCheckpoint(checkpoint, { ...extra, ...folder.extraOf(checkpoint) });
      },
    };
  }

  #after(batch: number): Progress<State> {
    return this.#progress.get(batch) ?? NO_PROGRESS;
  }

  #contextOf(step: number, context: StepContext<ServiceClient>): TrainingContext<State> {
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
        this.#badLoss = this.#notANumber(step, loss);
        throw this.#badLoss;
      },
      note: (text) => void this.#parts.logger.note(text),
    };
  }

  async #measure(
    training: TrainingClient,
    batch: number,
    context: StepContext<ServiceClient>,
  ): Promise<void> {
    const plan = this.#evaluation;
    const { spec } = this.#parts;
    const isDue = isEvaluated(batch, plan);
    const isOver = isDue && (await this.#evaluate(training, batch, context));
    if (isOver || batch === plan.steps || spec.hasWork === undefined) return;
    if (await spec.hasWork(training, batch, this.#contextOf(batch, context))) return;
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
    // What stands at this step gave the bad loss.
    const good = this.#checkpoints.findLast(({ batch }) => batch < step || batch === 0);
    const where = good === undefined ? "" : ` The last good checkpoint is ${good.name}: ${good.statePath}.`;
    return new TinkerError(
      `The loss of step ${step} is ${loss}, so the run has ended.${where} A learning rate below ${learningRate} or ` +
        "adam: { gradClipNorm: 1 } usually helps.",
    );
  }

  #onEvent(event: RunEvent): void {
    const { folder, logger } = this.#parts;
    const note = (text: string) => void logger.note(text);
    switch (event.type) {
      case "step":
        this.#logMetrics(event.metrics, event.step, event.repeated);
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
        note(`Going on after ${event.checkpoint.batch} steps, from ${event.checkpoint.statePath}`);
        break;
      case "failed":
        note(`Step ${event.step} failed (${event.reason}): ${messageOf(event.error)}`);
        break;
      case "restoring":
        note(`Trying again in ${(event.delayMs / 1000).toFixed(1)} s`);
        break;
      case "started":
      case "gave-up":
      case "paused":
      case "finished":
        break;
      default:
        event satisfies never;
    }
  }

  /** A run goes back to checkpoints alone. */
  #forgetBefore(batch: number): void {
    const saved = new Set(this.#checkpoints.map((checkpoint) => checkpoint.batch));
    for (const each of this.#progress.keys())
      if (each < batch && !saved.has(each)) this.#progress.delete(each);
  }

  #logMetrics(metrics: RunMetrics, step: number, isRepeated: boolean): void {
    Object.assign(this.metrics, metrics);
    if (!isRepeated) void this.#parts.logger.metrics(metrics, step);
  }

  /** Not before the weights of the newer one have given a loss that is a number. */
  #deleteObsolete(step: number): void {
    const newest = this.#checkpoints.at(-1);
    if (this.#obsolete === undefined || newest === undefined || step < newest.batch) return;
    const { statePath } = this.#obsolete;
    this.#obsolete = undefined;
    // What cannot be deleted expires.
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
