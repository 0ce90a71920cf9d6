/** Environments whose tasks are a token each, and which fail where a test says so. */
import { setTimeout as sleep } from "node:timers/promises";
import type { GroupReward } from "../../src/cookbook/environments/index.js";
import type { Environment, GroupSource } from "../../src/cookbook/index.js";
import { ModelInput } from "../../src/wire/index.js";

/** Where an environment is; attempts of a member that is tried again have the same place. */
export interface Place {
  readonly index: number;
  readonly member: number;
}

type Maybe<T> = T | Promise<T>;

/** What is done instead of the usual; all that is not given works. */
export interface Faults {
  group?(index: number): unknown;
  make?(index: number): Maybe<void>;
  start?(place: Place): Maybe<void>;
  /** Another reward. */
  step?(place: Place): Maybe<number | undefined>;
  groupRewards?(index: number): Maybe<readonly GroupReward[] | undefined>;
  close?(place: Place): Maybe<void>;
  closeGroup?(index: number): Maybe<void>;
}

const GROUP_SIZE = 4;
/** As containers and connections do, these take their time to close. */
const CLOSING_MS = 20;

/** Which group an episode in a run's files is of. */
export const groupTag = (index: number) => `group-${index}`;

/** Groups of four whose answers are rewarded when their first token is odd. What is open can be counted at any time. */
export class FaultyWorld implements GroupSource {
  readonly #faults: Faults;
  readonly #numGroups: number;
  readonly groupSize: number;
  /** Made, and not closed yet. */
  open = 0;
  openGroups = 0;
  made = 0;
  closedTwice = 0;
  isClosed = false;

  constructor(faults: Faults = {}, { numGroups = Number.POSITIVE_INFINITY, groupSize = GROUP_SIZE } = {}) {
    this.#faults = faults;
    this.#numGroups = numGroups;
    this.groupSize = groupSize;
  }

  async group(index: number) {
    await this.#faults.group?.(index);
    if (index >= this.#numGroups) return undefined;
    this.openGroups += 1;
    return {
      makeEnvironments: async () => {
        await this.#faults.make?.(index);
        return Array.from({ length: this.groupSize }, (_, member) => this.#environment({ index, member }));
      },
      groupRewards: async (trajectories: readonly unknown[]) =>
        (await this.#faults.groupRewards?.(index)) ?? trajectories.map(() => ({ reward: 0 })),
      close: async () => {
        await sleep(CLOSING_MS);
        this.openGroups -= 1;
        await this.#faults.closeGroup?.(index);
      },
      tags: [groupTag(index)],
    };
  }

  close(): void {
    this.isClosed = true;
  }

  #environment(place: Place): Environment {
    let isOpen = true;
    this.open += 1;
    this.made += 1;
    return {
      start: async () => {
        await this.#faults.start?.(place);
        return { prompt: ModelInput.fromInts([2 + (place.index % 60), 3]), stop: [1] };
      },
      step: async ({ tokens }) => {
        const reward = (await this.#faults.step?.(place)) ?? (tokens[0] ?? 0) % 2;
        return { reward, isDone: true };
      },
      close: async () => {
        if (!isOpen) this.closedTwice += 1;
        isOpen = false;
        await sleep(CLOSING_MS);
        this.open -= 1;
        await this.#faults.close?.(place);
      },
    };
  }
}
