import type { SamplingClient, ServiceClient, TrainingClient } from "../../clients/index.js";
import { TinkerError } from "../../errors.js";
import { untilAborted } from "../../transport/index.js";
import type { ForwardBackwardOutput, OptimStepResponse } from "../../wire/index.js";
import type { GroupSource, Metrics } from "../environments/index.js";
import { settled } from "../environments/within-time.js";
import { meanMetrics } from "../evaluation/statistics.js";
import { type CountedFailures, FailureCounts, type RolloutPool } from "../rollouts/index.js";
import { weightsSource } from "../runs/reopening-sampler.js";
import { adamAt } from "../runs/settings.js";
import type { TrainingContext } from "../runs/training-loop.js";
import { dropConstantGroups, groupAdvantages } from "./advantages.js";
import { assembleData } from "./assemble.js";
import { GroupFeed, type RolloutGroup } from "./group-feed.js";
import { rolloutPool, runGroup } from "./group-source.js";
import { type AdvantagePenalty, klPenalty, klSampleTrain, postKl } from "./kl.js";
import type { PolicyLoss } from "./losses.js";
import { samplerMetrics, trajectoryMetrics } from "./metrics.js";
import { lossOf, type ReinforcementSettings } from "./options.js";
import type { RolloutDatum } from "./rollout-datum.js";
import type { ReinforcementRunSettings } from "./settings.js";
import { StepBatch, type StepRequest } from "./step-batch.js";

/** Saved with each checkpoint; everything else follows from the step number. */
export interface ReinforcementState {
  /** Number of the next group in the source. */
  readonly nextGroup: number;
  readonly failures?: CountedFailures | undefined;
}

type Context = TrainingContext<ReinforcementState>;

/** State that lives as long as one training client. */
interface TrainingAttempt {
  readonly training: TrainingClient;
  readonly feed: GroupFeed<SamplingClient>;
  readonly penalties: readonly AdvantagePenalty[];
}

/** The current step and its requests. */
interface Work {
  readonly attempt: TrainingAttempt;
  readonly batch: StepBatch;
  readonly first: StepRequest;
  readonly requests: AsyncGenerator<StepRequest>;
  readonly prepared: PreparedData;
  readonly startedMs: number;
}

/** Data of the sampled groups, and the metrics of their penalties. */
interface PreparedData {
  readonly penaltyMetrics: Metrics[];
  readonly dataOf: Map<RolloutGroup, RolloutDatum[]>;
}

/**
 * Samples groups and trains on them; all three modes use this loop, with sampling further ahead or data in more parts.
 */
export class ReinforcementLoop {
  readonly #options: ReinforcementSettings;
  readonly #settings: ReinforcementRunSettings;
  readonly #source: GroupSource;
  readonly #loss: PolicyLoss;
  readonly #pool: RolloutPool;
  /** Groups whose episodes have not ended, or are not closed yet. */
  readonly #rolling = new Set<Promise<unknown>>();
  #attempt: TrainingAttempt | undefined;
  #work: Work | undefined;

  constructor(options: ReinforcementSettings, settings: ReinforcementRunSettings, source: GroupSource) {
    this.#options = options;
    this.#settings = settings;
    this.#source = source;
    this.#pool = rolloutPool(options);
    this.#loss = lossOf(settings.loss);
  }

  /** Samples the first data of a step and keeps them for `step`; false if there is nothing to train on. */
  async prepareStep(training: TrainingClient, step: number, context: Context): Promise<boolean> {
    const startedMs = performance.now();
    const attempt =
      this.#attempt?.training === training ? this.#attempt : await this.#begin(training, step, context);
    const prepared: PreparedData = { penaltyMetrics: [], dataOf: new Map() };
    const prepare = (groups: readonly RolloutGroup[]) =>
      this.#prepare(groups, attempt, prepared, context.signal);
    const batch = new StepBatch(
      attempt.feed,
      { ...this.#settings, prepare },
      { step, first: firstGroup(context) },
    );
    const requests = batch.requests();
    const first = await nextRequest(requests, attempt, context);
    if (first !== undefined) {
      this.#work = { attempt, batch, first, requests, prepared, startedMs };
      return true;
    }
    context.warn({
      kind: "nothing_to_learn",
      metric: "env/all/by_group/frac_mixed",
      message: "no group of episodes had anything to train on",
      proposal: "easier or harder problems, a reward with more than two values, or a larger groupSize",
    });
    if (step === 0) throw new TinkerError(`Nothing was trained: ${batch.reason}.`);
    context.note(`The run ends after ${step} of ${this.#settings.steps} steps: ${batch.reason}.`);
    return false;
  }

  /** Trains on the data of `prepareStep`, and on the rest of the step's groups as they arrive. */
  async step(training: TrainingClient, step: number, context: Context): Promise<void> {
    const { attempt, batch, first, requests, prepared, startedMs } = this.#work!;
    const { signal } = context;
    const { steps, measurePostKl } = this.#settings;
    const adam = adamAt(this.#settings, step);
    const passes: Pass[] = [];
    const updates: PromiseLike<OptimStepResponse>[] = [];
    for (let next: StepRequest | undefined = first; next !== undefined; ) {
      if (next.type === "update") updates.push(training.optimStep(adam, { signal }));
      else passes.push(this.#pass(training, next.data, signal));
      next = await nextRequest(requests, attempt, context);
    }
    const sampledMs = performance.now();
    const failures = new FailureCounts(context.state?.failures);
    for (const { group } of batch.groups) failures.add(group);
    context.keepState({ nextGroup: batch.nextGroup, failures: failures.counted });
    const data = passes.flatMap((pass) => pass.data);
    context.countTokens(data.reduce((sum, { input }) => sum + input.length, 0));
    const sampler = step + 1 < steps || measurePostKl ? this.#refresh(attempt, step + 1, signal) : undefined;
    const results = async () => {
      await this.#writeDown(step, batch.groups, prepared);
      const outputs = await Promise.all(passes.map(({ output }) => output));
      const [update] = (await Promise.all(updates)).slice(-1);
      for (const { metrics } of outputs) if ("loss:sum" in metrics) context.checkLoss(metrics["loss:sum"]!);
      const doneMs = performance.now();
      return {
        "progress/batch": step,
        "progress/done_frac": (step + 1) / steps,
        "optim/lr": adam.learningRate,
        ...trajectoryMetrics(batch.groups.map(({ group }) => group)),
        "sampling/frac_cut": shareCut(batch.groups),
        ...meanMetrics(prepared.penaltyMetrics),
        ...update?.metrics,
        ...this.#loss.measure?.(outputs),
        ...samplerDistance(data, outputs),
        ...(measurePostKl && (await postKl(data, await sampler!, signal))),
        ...this.#modeMetrics(step, batch.groups),
        ...failures.metrics(),
        "time/sampling": (sampledMs - startedMs) / 1000,
        "time/train_step": (doneMs - sampledMs) / 1000,
        "time/total": (doneMs - startedMs) / 1000,
      };
    };
    context.addMetrics(results());
  }

  #pass(training: TrainingClient, data: readonly RolloutDatum[], signal: AbortSignal): Pass {
    const output = this.#loss.forwardBackward(training, data, { signal });
    // The step may fail before it awaits this promise; if a custom loss then rejected, the process would end.
    output.then(undefined, () => {});
    return { data, output };
  }

  /** Describes the groups that have not ended; undefined if there are none. */
  waitingFor(): string | undefined {
    return this.#attempt && waitingGroups(this.#attempt.feed);
  }

  /** Resolves when everything sampled ahead for later steps is closed. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#rolling);
  }

  async #untilOver<T>(rolling: Promise<T>): Promise<T> {
    this.#rolling.add(rolling);
    try {
      return await rolling;
    } finally {
      this.#rolling.delete(rolling);
    }
  }

  async #begin(training: TrainingClient, step: number, context: Context): Promise<TrainingAttempt> {
    const { service, signal } = context;
    const { model, seed, groupsPerBatch, maxStepsOffPolicy, steps } = this.#settings;
    const feed = new GroupFeed<SamplingClient>(
      {
        groupsPerBatch,
        maxStepsOffPolicy,
        steps,
        followsWeights: this.#settings.followWeights,
        runGroup: (index, weights) =>
          this.#untilOver(
            runGroup(this.#source, index, weights, {
              model,
              seed,
              signal,
              pool: this.#pool,
              acting: this.#options,
            }),
          ),
      },
      { step, first: firstGroup(context) },
    );
    const penalties = await untilAborted(this.#penalties(service), signal);
    await this.#loss.prepare?.(training);
    const attempt = { training, feed, penalties };
    this.#attempt = attempt;
    void this.#refresh(attempt, step, signal);
    return attempt;
  }

  async #penalties(service: ServiceClient): Promise<readonly AdvantagePenalty[]> {
    const { kl } = this.#settings;
    const given = (await this.#options.penalties?.(service)) ?? [];
    if (kl === undefined) return given;
    const { reference, ...options } = kl;
    const sampler = await service.createSamplingClient(weightsSource(reference));
    return [klPenalty({ ...options, reference: sampler }), ...given];
  }

  /** Groups are sampled with the weights after the requests made so far. */
  #refresh({ training, feed }: TrainingAttempt, step: number, signal: AbortSignal): Promise<SamplingClient> {
    const saving = training.saveWeightsAndGetSamplingClient({ signal });
    saving.then(
      (sampler) => feed.refresh(sampler, step),
      (error: unknown) => feed.fail(error),
    );
    return saving;
  }

  /** Constant groups are not trained, unless a penalty changes their advantages. */
  async #prepare(
    rolled: readonly RolloutGroup[],
    { penalties }: TrainingAttempt,
    { penaltyMetrics, dataOf }: PreparedData,
    signal: AbortSignal,
  ): Promise<readonly RolloutDatum[]> {
    const groups = penalties.length > 0 ? rolled : this.#informative(rolled);
    const trajectories = groups.map(({ group }) => group);
    const advantages = trajectories.map((group) => groupAdvantages(group, this.#settings.advantages));
    const data = assembleData(trajectories, advantages);
    if (data.length === 0) return data;
    for (const penalty of penalties) {
      const applied = settled(() => penalty.apply(data, { groups, signal }));
      penaltyMetrics.push(await untilAborted(applied, signal));
    }
    for (const group of groups) dataOf.set(group, []);
    for (const datum of data) dataOf.get(groups[datum.group]!)!.push(datum);
    return data;
  }

  #informative(rolled: readonly RolloutGroup[]): readonly RolloutGroup[] {
    const informative = rolled.filter(({ group }) => dropConstantGroups([group]).length > 0);
    return informative.length === 0 || this.#settings.dropConstantGroups ? informative : rolled;
  }

  async #writeDown(step: number, groups: readonly RolloutGroup[], { dataOf }: PreparedData): Promise<void> {
    const { folder, onRollouts } = this.#options;
    await onRollouts?.({ step, groups });
    if (folder === undefined) return;
    const { writeRollouts } = await import("../rollouts/rollout-files.node.js");
    const recorded = groups.map((rolled) => ({ ...rolled, data: dataOf.get(rolled) }));
    await writeRollouts(folder, { split: "train", iteration: step, groups: recorded });
  }

  #modeMetrics(step: number, groups: readonly RolloutGroup[]): Metrics {
    switch (this.#settings.mode) {
      case "synchronous":
        return {};
      case "streamed":
        return samplerMetrics(groups);
      case "asynchronous":
        return { "training_client/step": step, ...samplerMetrics(groups) };
      default:
        return this.#settings.mode satisfies never;
    }
  }
}

/** Interval of messages about what a step waits for. */
const NOTICE_EVERY_MS = 60_000;

/** An environment that never answers causes no failure without a limit, so the run must at least show it. */
async function nextRequest(
  requests: AsyncGenerator<StepRequest>,
  { feed }: TrainingAttempt,
  { note }: Context,
): Promise<StepRequest | undefined> {
  const notice = setInterval(() => {
    const groups = waitingGroups(feed);
    if (groups === undefined) return;
    note(
      `Still waiting for ${groups}; limits.timeoutMs ends episodes that take too long, termination.graderTimeoutMs rewards`,
    );
  }, NOTICE_EVERY_MS);
  try {
    return (await requests.next()).value ?? undefined;
  } finally {
    clearInterval(notice);
  }
}

function waitingGroups(feed: TrainingAttempt["feed"]): string | undefined {
  const [oldest, ...others] = feed.rolling();
  if (oldest === undefined) return undefined;
  const more = others.length === 0 ? "" : ` and ${others.length} more`;
  return `group ${oldest.index} (its episodes and rewards began ${oldest.seconds.toFixed(0)} s ago)${more}`;
}

/** Share of the answers that a limit of tokens cut off. */
function shareCut(groups: readonly RolloutGroup[]): number {
  const turns = groups.flatMap(({ group }) => group.trajectories.flatMap((trajectory) => trajectory.turns));
  const cut = turns.filter(({ action }) => action.stopReason === "length");
  return turns.length === 0 ? 0 : cut.length / turns.length;
}

interface Pass {
  readonly data: readonly RolloutDatum[];
  readonly output: PromiseLike<ForwardBackwardOutput>;
}

function firstGroup({ state }: Context): number {
  return state?.nextGroup ?? 0;
}

/** A custom loss may return other logprobs than those of the sampled tokens. */
function samplerDistance(data: readonly RolloutDatum[], outputs: readonly ForwardBackwardOutput[]): Metrics {
  const logprobs = outputs.flatMap(({ lossFnOutputs }) =>
    lossFnOutputs.map((output) => output["logprobs"]?.data ?? []),
  );
  const isOfSamples = data.every(({ mask }, place) => logprobs[place]?.length === mask.length);
  return isOfSamples ? klSampleTrain(data, logprobs) : {};
}
