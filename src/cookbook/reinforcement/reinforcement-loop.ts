import type { SamplingClient, ServiceClient, TrainingClient } from "../../clients/index.js";
import { TinkerError } from "../../errors.js";
import { untilAborted } from "../../transport/index.js";
import type { ForwardBackwardOutput, OptimStepResponse } from "../../wire/index.js";
import type { GroupSource, Metrics } from "../environments/index.js";
import { settled } from "../environments/within-time.js";
import { type CountedFailures, FailureCounts, RolloutPool } from "../rollouts/index.js";
import { adamAt } from "../runs/settings.js";
import type { TrainingContext } from "../runs/training-loop.js";
import { dropConstantGroups, groupAdvantages } from "./advantages.js";
import { assembleData } from "./assemble.js";
import { GroupFeed, type RolledGroup } from "./group-feed.js";
import { rollOut } from "./group-source.js";
import { type AdvantagePenalty, klPenalty, klSampleTrain, postKl } from "./kl.js";
import type { PolicyLoss } from "./losses.js";
import { meanMetrics, samplerMetrics, trajectoryMetrics } from "./metrics.js";
import { lossOf, type ReinforcementSettings } from "./options.js";
import type { RolloutDatum } from "./rollout-datum.js";
import type { ReinforcementRunSettings } from "./settings.js";
import { StepBatch, type StepRequest } from "./step-batch.js";

/** What is saved with each checkpoint: all else follows from the number of the step. */
export interface ReinforcementState {
  /** The number of the next group in the source. */
  readonly nextGroup: number;
  readonly failures?: CountedFailures | undefined;
}

type Context = TrainingContext<ReinforcementState>;

/** What lives as long as a training client does. */
interface Life {
  readonly training: TrainingClient;
  readonly feed: GroupFeed<SamplingClient>;
  readonly penalties: readonly AdvantagePenalty[];
}

/** A step under way. */
interface Work {
  readonly life: Life;
  readonly batch: StepBatch;
  readonly first: StepRequest;
  readonly requests: AsyncGenerator<StepRequest>;
  readonly found: Found;
  readonly startedMs: number;
}

/** What was found out while groups were turned into data. */
interface Found {
  readonly penaltyMetrics: Metrics[];
  readonly dataOf: Map<RolledGroup, RolloutDatum[]>;
}

/** Samples groups, and trains on them; all three modes are this loop, with sampling further ahead or data in more parts. */
export class ReinforcementLoop {
  readonly #options: ReinforcementSettings;
  readonly #settings: ReinforcementRunSettings;
  readonly #source: GroupSource;
  readonly #loss: PolicyLoss;
  readonly #pool = new RolloutPool();
  /** Groups whose episodes are not over, or not closed yet. */
  readonly #rolling = new Set<Promise<unknown>>();
  #life: Life | undefined;
  #work: Work | undefined;

  constructor(options: ReinforcementSettings, settings: ReinforcementRunSettings, source: GroupSource) {
    this.#options = options;
    this.#settings = settings;
    this.#source = source;
    this.#loss = lossOf(settings.loss);
  }

  /** Whether there is something to learn from at this step; it is kept for the step. */
  async hasWork(training: TrainingClient, step: number, context: Context): Promise<boolean> {
    const startedMs = performance.now();
    const life = this.#life?.training === training ? this.#life : await this.#begin(training, step, context);
    const found: Found = { penaltyMetrics: [], dataOf: new Map() };
    const prepare = (groups: readonly RolledGroup[]) => this.#prepare(groups, life, found, context.signal);
    const batch = new StepBatch(
      life.feed,
      { ...this.#settings, prepare },
      { step, first: firstGroup(context) },
    );
    const requests = batch.requests();
    const first = await nextRequest(requests, life, context);
    if (first !== undefined) {
      this.#work = { life, batch, first, requests, found, startedMs };
      return true;
    }
    if (step === 0) throw new TinkerError(`Nothing was trained: ${batch.reason}.`);
    context.note(`The run ends after ${step} of ${this.#settings.steps} steps: ${batch.reason}.`);
    return false;
  }

  /** Trains on what `hasWork` has found, and on the rest of the batch as it comes. */
  async step(training: TrainingClient, step: number, context: Context): Promise<void> {
    const { life, batch, first, requests, found, startedMs } = this.#work!;
    const { signal } = context;
    const { steps, measuresPostKl } = this.#settings;
    const adam = adamAt(this.#settings, step);
    const passes: Pass[] = [];
    const updates: PromiseLike<OptimStepResponse>[] = [];
    for (let next: StepRequest | undefined = first; next !== undefined; ) {
      if (next.type === "update") updates.push(training.optimStep(adam, { signal }));
      else passes.push(this.#pass(training, next.data, signal));
      next = await nextRequest(requests, life, context);
    }
    const sampledMs = performance.now();
    const failures = new FailureCounts(context.state?.failures);
    for (const { group } of batch.groups) failures.add(group);
    context.keepState({ nextGroup: batch.nextGroup, failures: failures.counted });
    const data = passes.flatMap((pass) => pass.data);
    context.countTokens(data.reduce((sum, { input }) => sum + input.length, 0));
    const sampler = step + 1 < steps || measuresPostKl ? this.#refresh(life, step + 1, signal) : undefined;
    const results = async () => {
      await this.#writeDown(step, batch.groups, found);
      const outputs = await Promise.all(passes.map(({ output }) => output));
      const [update] = (await Promise.all(updates)).slice(-1);
      for (const { metrics } of outputs) if ("loss:sum" in metrics) context.checkLoss(metrics["loss:sum"]!);
      const doneMs = performance.now();
      return {
        "progress/batch": step,
        "progress/done_frac": (step + 1) / steps,
        "optim/lr": adam.learningRate,
        ...trajectoryMetrics(batch.groups.map(({ group }) => group)),
        ...meanMetrics(found.penaltyMetrics),
        ...update?.metrics,
        ...this.#loss.measure?.(outputs),
        ...samplerDistance(data, outputs),
        ...(measuresPostKl && (await postKl(data, await sampler!, signal))),
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
    // The step may fail before it awaits this, and a promise of one's own loss that nobody awaits would end the process.
    output.then(undefined, () => {});
    return { data, output };
  }

  /** Resolves when all that was sampled ahead, for steps that are not to come, is closed. */
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

  async #begin(training: TrainingClient, step: number, context: Context): Promise<Life> {
    const { service, signal } = context;
    const { model, seed, groupsPerBatch, maxStepsOffPolicy, steps } = this.#settings;
    const feed = new GroupFeed<SamplingClient>(
      {
        groupsPerBatch,
        maxStepsOffPolicy,
        steps,
        rollOut: (index, sampler) =>
          this.#untilOver(
            rollOut(this.#source, index, sampler, {
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
    const life = { training, feed, penalties };
    this.#life = life;
    void this.#refresh(life, step, signal);
    return life;
  }

  async #penalties(service: ServiceClient): Promise<readonly AdvantagePenalty[]> {
    const { kl } = this.#settings;
    const given = (await this.#options.penalties?.(service)) ?? [];
    if (kl === undefined) return given;
    const { reference, ...options } = kl;
    const from = reference.startsWith("tinker://") ? { modelPath: reference } : { baseModel: reference };
    return [klPenalty({ ...options, reference: await service.createSamplingClient(from) }), ...given];
  }

  /** Groups are sampled with the weights as they are after the requests made so far. */
  #refresh({ training, feed }: Life, step: number, signal: AbortSignal): Promise<SamplingClient> {
    const saving = training.saveWeightsAndGetSamplingClient({ signal });
    saving.then(
      (sampler) => feed.refresh(sampler, step),
      (error: unknown) => feed.fail(error),
    );
    return saving;
  }

  /** Constant groups teach nothing, unless a penalty makes a difference. */
  async #prepare(
    rolled: readonly RolledGroup[],
    { penalties }: Life,
    { penaltyMetrics, dataOf }: Found,
    signal: AbortSignal,
  ): Promise<readonly RolloutDatum[]> {
    const groups = penalties.length > 0 ? rolled : this.#telling(rolled);
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

  #telling(rolled: readonly RolledGroup[]): readonly RolledGroup[] {
    const telling = rolled.filter(({ group }) => dropConstantGroups([group]).length > 0);
    return telling.length === 0 || this.#settings.dropsConstantGroups ? telling : rolled;
  }

  async #writeDown(step: number, groups: readonly RolledGroup[], { dataOf }: Found): Promise<void> {
    const { folder, onRollouts } = this.#options;
    await onRollouts?.({ step, groups });
    if (folder === undefined) return;
    const { writeRollouts } = await import("../rollouts/rollout-files.node.js");
    const recorded = groups.map((rolled) => ({ ...rolled, data: dataOf.get(rolled) }));
    await writeRollouts(folder, { split: "train", iteration: step, groups: recorded });
  }

  #modeMetrics(step: number, groups: readonly RolledGroup[]): Metrics {
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

/** How often a step that waits says what for. */
const NOTICE_EVERY_MS = 60_000;

/** An environment that never answers fails nothing, unless a limit makes it; so it must at least be seen. */
async function nextRequest(
  requests: AsyncGenerator<StepRequest>,
  { feed }: Life,
  { note }: Context,
): Promise<StepRequest | undefined> {
  const notice = setInterval(() => {
    const [oldest, ...others] = feed.rolling();
    if (oldest === undefined) return;
    const more = others.length === 0 ? "" : ` and ${others.length} more`;
    note(
      `Still waiting for group ${oldest.index}, which began ${oldest.seconds.toFixed(0)} s ago${more}; limits.timeoutMs ends ` +
        "episodes that take too long",
    );
  }, NOTICE_EVERY_MS);
  try {
    return (await requests.next()).value ?? undefined;
  } finally {
    clearInterval(notice);
  }
}

interface Pass {
  readonly data: readonly RolloutDatum[];
  readonly output: PromiseLike<ForwardBackwardOutput>;
}

function firstGroup({ state }: Context): number {
  return state?.nextGroup ?? 0;
}

/** A loss of one's own may give other logprobs than those of the sampled tokens. */
function samplerDistance(data: readonly RolloutDatum[], outputs: readonly ForwardBackwardOutput[]): Metrics {
  const logprobs = outputs.flatMap(({ lossFnOutputs }) =>
    lossFnOutputs.map((output) => output["logprobs"]?.data ?? []),
  );
  const isOfSamples = data.every(({ mask }, place) => logprobs[place]?.length === mask.length);
  return isOfSamples ? klSampleTrain(data, logprobs) : {};
}
