import { totalRewards } from "../environments/index.js";
import { isConstant } from "./advantages.js";
import { splitEvenly } from "./assemble.js";
import type { GroupFeed, RolloutGroup } from "./group-feed.js";
import type { RolloutDatum } from "./rollout-datum.js";

/** A request of a step to the trainer: the gradients of some data, or an optimizer step. */
export type StepRequest =
  | { readonly type: "pass"; readonly data: readonly RolloutDatum[] }
  | { readonly type: "update" };

/** How to cut a batch, and how to turn groups into data. */
export interface StepBatchOptions {
  readonly groupsPerBatch: number;
  readonly substeps: number;
  readonly minibatches: number;
  /** Returns undefined if there is nothing to train on. */
  readonly prepare: (groups: readonly RolloutGroup[]) => Promise<readonly RolloutDatum[]>;
}

/** After this many consecutive batches without training data, the run stops. */
const MAX_BATCHES_WITHOUT_DATA = 10;

/** The groups of one step, taken as they arrive and turned into requests. */
export class StepBatch {
  readonly #feed: Pick<GroupFeed<never>, "beginBatch" | "take">;
  readonly #options: StepBatchOptions;
  readonly #step: number;
  /** All groups taken, including those that are not trained. */
  readonly groups: RolloutGroup[] = [];
  /** Number of the next step's first group. */
  nextGroup: number;
  #hasEnded = false;

  constructor(
    feed: Pick<GroupFeed<never>, "beginBatch" | "take">,
    options: StepBatchOptions,
    { step, first }: { readonly step: number; readonly first: number },
  ) {
    this.#feed = feed;
    this.#options = options;
    this.#step = step;
    this.nextGroup = first;
  }

  /** Yields nothing if there is nothing to train on; `reason` says why. */
  async *requests(): AsyncGenerator<StepRequest, void, undefined> {
    for (let batch = 0; batch < MAX_BATCHES_WITHOUT_DATA && !this.#hasEnded; batch += 1) {
      let isTrained = false;
      for await (const request of this.#batch()) {
        isTrained = true;
        yield request;
      }
      if (isTrained) return;
    }
  }

  async *#batch(): AsyncGenerator<StepRequest, void, undefined> {
    const { groupsPerBatch, substeps, minibatches, prepare } = this.#options;
    const first = this.nextGroup;
    this.nextGroup += groupsPerBatch;
    this.#feed.beginBatch(this.#step, first);
    const numbers = Array.from({ length: groupsPerBatch }, (_, place) => first + place);
    for (const substep of splitEvenly(numbers, substeps)) {
      let hasGradients = false;
      for (const minibatch of splitEvenly(substep, minibatches)) {
        const taken = await Promise.all(minibatch.map((index) => this.#feed.take(index)));
        const groups = taken.filter((group) => group !== undefined);
        this.#hasEnded ||= groups.length < taken.length;
        this.groups.push(...groups);
        const data = await prepare(groups);
        if (data.length === 0) continue;
        hasGradients = true;
        yield { type: "pass", data };
      }
      if (hasGradients) yield { type: "update" };
    }
  }

  get #lastFailure(): string {
    const last = this.groups.findLast(({ group }) => group.failures.length > 0)?.group.failures.at(-1);
    return last === undefined ? "" : ` (the last error: ${last.message})`;
  }

  /** Why there was nothing to train on. */
  get reason(): string {
    if (this.groups.length === 0) return "the environments have come to their end";
    const isOutOfTime = ({ group: { trajectories } }: RolloutGroup) =>
      trajectories.length > 0 && trajectories.every(({ end }) => end === "rollout_timeout");
    const outOfTime = this.groups.filter(isOutOfTime).length;
    const rewards = this.groups
      .filter((rolled) => !isOutOfTime(rolled))
      .map(({ group }) => totalRewards(group));
    const failed = rewards.filter(({ length }) => length === 0).length;
    const constant = rewards.filter(({ length }) => length > 0).filter(isConstant);
    const all = constant.flat();
    const mean = all.reduce((sum, reward) => sum + reward, 0) / all.length;
    const parts = [
      ...(outOfTime > 0 ? [`in ${outOfTime} all episodes ran out of time (limits.timeoutMs)`] : []),
      ...(constant.length > 0
        ? [`in ${constant.length} all episodes were rewarded alike (${mean.toPrecision(3)} on average)`]
        : []),
      ...(failed > 0 ? [`${failed} failed${this.#lastFailure}`] : []),
    ];
    const advice =
      outOfTime === this.groups.length
        ? "A higher limits.timeoutMs, or a faster environment or reward, makes a difference"
        : "Easier or harder problems, a reward with more than two values, a larger groupSize or a higher temperature make a difference";
    return (
      `of the last ${this.groups.length} groups ${parts.join(" and ") || "none had anything that is trained on"}, so there is ` +
      `nothing to learn from. ${advice}`
    );
  }
}
