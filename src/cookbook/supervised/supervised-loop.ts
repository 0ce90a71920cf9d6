import type { RestClient, ServiceClient, TrainingClient } from "../../clients/index.js";
import { messageOf, TinkerError } from "../../errors.js";
import {
  type RunCheckpoint,
  type RunEvent,
  type RunMetrics,
  type StepContext,
  type SupervisedRunResult,
  superviseRun,
} from "../../training/index.js";
import type { Datum, ForwardBackwardOutput } from "../../wire/index.js";
import type { BestKeeper } from "./best-weights.js";
import { type EvaluationPlan, isEvaluated, scoredTokens, startEvaluation } from "./evaluation.js";
import { bitsPerByte, meanNll } from "./likelihood.js";
import type { TrainingLogger } from "./logger.js";
import type { TrainSupervisedOptions } from "./options.js";
import type { PreparedRun } from "./prepare-run.js";
import type { RunFolder } from "./run-folder.node.js";
import { savePlan } from "./save-plan.js";
import { scheduleMultiplier } from "./schedule.js";
import { lossTokens } from "./training-data.js";

/** What the loop works with. */
export interface LoopParts {
  readonly options: TrainSupervisedOptions;
  readonly prepared: PreparedRun;
  readonly folder: RunFolder | undefined;
  readonly logger: Required<TrainingLogger>;
  readonly rest: RestClient;
  readonly best: BestKeeper | undefined;
  /** Tokens trained on, by the number of steps done. */
  readonly tokens: Map<number, number>;
}

/** Trains what was prepared, from where it stands to its end. */
export class SupervisedLoop {
  readonly #parts: LoopParts;
  readonly #evaluation: EvaluationPlan;
  readonly #checkpoints: RunCheckpoint[] = [];
  /** Saved only to bridge the time to the next checkpoint, which is there. */
  #obsolete: RunCheckpoint | undefined;
  #badLoss: TinkerError | undefined;
  #evaluating: Promise<unknown> = Promise.resolve();
  readonly metrics: Record<string, RunMetrics[string]> = {};

  constructor(parts: LoopParts) {
    this.#parts = parts;
    const { settings, data, renderer } = parts.prepared;
    this.#evaluation = {
      every: settings.evaluateEvery,
      steps: settings.steps,
      test: data.test,
      tokenizer: renderer.tokenizer,
      evaluators: parts.options.evaluators ?? [],
      best: parts.best,
      ttlSeconds: settings.save.ttlSeconds,
    };
  }

  async run(): Promise<SupervisedRunResult> {
    const { options, prepared, folder, tokens } = this.#parts;
    const { settings } = prepared;
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
      step: (training, step, context) => this.#step(training, step, context),
      steps: settings.steps,
      checkpointAt: savePlan(settings.save, { tokensAfter: (batch) => tokens.get(batch) ?? 0 }),
      log: folder,
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

  async #measure(
    training: TrainingClient,
    batch: number,
    { signal, end, addMetrics }: StepContext<ServiceClient>,
  ): Promise<void> {
    const plan = this.#evaluation;
    const { best } = plan;
    if (!isEvaluated(batch, plan)) return;
    // One at a time: training may run ahead of an evaluation, and not of two.
    await this.#evaluating;
    const evaluating = startEvaluation(training, batch, plan, signal);
    this.#evaluating = evaluating.catch(() => {});
    addMetrics(evaluating);
    if (best?.patience === undefined) return;
    await evaluating;
    if (best.isOver(batch, plan.every)) end();
  }

  async #step(
    training: TrainingClient,
    step: number,
    { signal, addMetrics }: StepContext<ServiceClient>,
  ): Promise<void> {
    const { prepared, tokens } = this.#parts;
    const { settings, data } = prepared;
    const startedMs = performance.now();
    const batch = await data.batch(step);
    const madeMs = performance.now();
    const { schedule, steps, warmupSteps } = settings;
    const learningRate = settings.learningRate * scheduleMultiplier(schedule, step, steps, warmupSteps);
    const pass = training.forwardBackward(batch, "cross_entropy", { signal });
    const update = training.optimStep({ learningRate, ...settings.adam }, { signal });
    const numTokens = batch.reduce((sum, { modelInput }) => sum + modelInput.length, 0);
    tokens.set(step + 1, (tokens.get(step) ?? 0) + numTokens);
    const results = async () => {
      const { scored, nll } = await pass.then((output) => this.#score(step, batch, output));
      const updated = await update;
      const doneMs = performance.now();
      return {
        epoch: Math.floor(step / settings.stepsPerEpoch),
        progress: (step + 1) / steps,
        learning_rate: learningRate,
        ...updated.metrics,
        num_sequences: batch.length,
        num_tokens: numTokens,
        num_loss_tokens: countLossTokens(batch),
        train_mean_nll: nll,
        train_mean_bpb: bitsPerByte(scored, prepared.renderer.tokenizer),
        "time/get_batch": (madeMs - startedMs) / 1000,
        "time/step": (doneMs - madeMs) / 1000,
        "time/total": (doneMs - startedMs) / 1000,
      };
    };
    addMetrics(results());
  }

  #score(step: number, batch: readonly Datum[], output: ForwardBackwardOutput) {
    const scored = scoredTokens(batch, output);
    const nll = meanNll(scored);
    if (Number.isFinite(nll)) return { scored, nll };
    this.#badLoss = this.#notANumber(step, nll);
    throw this.#badLoss;
  }

  #notANumber(step: number, nll: number): TinkerError {
    const { learningRate } = this.#parts.prepared.settings;
    // What stands at this step gave the bad loss.
    const good = this.#checkpoints.findLast(({ batch }) => batch < step || batch === 0);
    const where = good === undefined ? "" : ` The last good checkpoint is ${good.name}: ${good.statePath}.`;
    return new TinkerError(
      `The loss of step ${step} is ${nll}, so the run has ended.${where} A learning rate below ${learningRate} or ` +
        "adam: { gradClipNorm: 1 } usually helps.",
    );
  }

  #onEvent(event: RunEvent): void {
    const { folder, logger, tokens } = this.#parts;
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
        if (event.checkpoint.final) this.#deleteObsolete(Number.POSITIVE_INFINITY);
        break;
      case "restored":
        if (folder !== undefined) tokens.set(event.checkpoint.batch, folder.elapsedTokens(event.checkpoint));
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

function countLossTokens(batch: readonly Datum[]): number {
  return batch.reduce((sum, datum) => sum + lossTokens(datum), 0);
}

/** A server that lists its runs shows this one by the name of its folder. */
function runName(folder: string | undefined): { name?: string } {
  const name = folder?.split(/[\\/]/).findLast((part) => !/^\.{0,2}$/.test(part));
  return name === undefined ? {} : { name };
}
