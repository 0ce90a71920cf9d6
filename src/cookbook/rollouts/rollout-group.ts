import { APIConnectionError, GoneError, messageOf, TinkerError } from "../../errors.js";
import { linkSignals, throwIfAborted } from "../../transport/index.js";
import { having, type OptionsOf, option, optional, optionTable } from "../../wire/index.js";
import type {
  Environment,
  EnvironmentGroup,
  Player,
  Policy,
  RolloutFailure,
  Trajectory,
  TrajectoryGroup,
} from "../environments/index.js";
import { RewardError } from "../environments/reward.js";
import { settled, withinTime } from "../environments/within-time.js";
import { concernsAll } from "../evaluation/run-example.js";
import { gradeGroup } from "./group-rewards.js";
import type { RolloutPool } from "./pool.js";
import { closeEnvironment, playEpisode } from "./run-rollout.js";
import { derivedSeed } from "./seeds.js";
import { type RolloutOptions, RUN_ROLLOUT_OPTIONS } from "./settings.js";
import { failFast, type RolloutStrategy, STRATEGY_OPTION } from "./strategies.js";

/** How the episodes of a group run. */
export interface RolloutGroupOptions extends RolloutOptions {
  /** Handling of failed episodes. Default: `failFast()`. */
  readonly strategy?: RolloutStrategy | undefined;
  /** Limit shared with other groups. Default: all episodes of the group at once. */
  readonly pool?: RolloutPool | undefined;
}

/** The option table of `runRolloutGroup`. */
export const ROLLOUT_GROUP_OPTIONS = optionTable({
  ...RUN_ROLLOUT_OPTIONS.fields,
  strategy: STRATEGY_OPTION,
  pool: option(
    optional(having<RolloutPool>("a RolloutPool", "run")),
    "places for episodes, shared with other groups",
  ),
} satisfies OptionsOf<RolloutGroupOptions>);

/**
 * Runs the episodes of a group at once and grades them. If the strategy continues without a failed group, the result
 * has failures and no episodes.
 */
export async function runRolloutGroup(
  group: EnvironmentGroup,
  policy: Policy,
  options: RolloutGroupOptions = {},
): Promise<TrajectoryGroup> {
  const { strategy = failFast(), signal } = options;
  ROLLOUT_GROUP_OPTIONS.check(options, "runRolloutGroup");
  const running = new RunningGroup(group, policy, { ...options, strategy });
  let graded: Graded = { trajectories: [], groupRewards: [], metrics: [] };
  try {
    throwIfAborted(signal, "The rollout");
    graded = await running.play();
  } catch (error) {
    throwIfAborted(signal, "The rollout");
    if (!strategy.skipsFailedGroups || concernsRun(error)) throw error;
    running.note(error);
  } finally {
    await running.close();
  }
  return { ...graded, failures: running.failures, tags: [...(group.tags ?? [])] };
}

/** Other episodes would fail too: the client has already retried, or the server has lost the sampler. */
function concernsRun(error: unknown): boolean {
  return error instanceof APIConnectionError || error instanceof GoneError || concernsAll(error);
}

type Graded = Pick<TrajectoryGroup, "trajectories" | "groupRewards" | "metrics">;

interface Played {
  readonly trajectory: Trajectory;
  readonly environment: Environment | Player;
}

/** Too many episodes of the group failed, each for its own reason. */
class TooFewEpisodesError extends TinkerError {
  override readonly name = "TooFewEpisodesError";
}

/** A group while its episodes run. */
class RunningGroup {
  readonly #group: EnvironmentGroup;
  readonly #policy: Policy;
  readonly #options: RolloutGroupOptions & { readonly strategy: RolloutStrategy };
  /** Ends all episodes when one of them fails the group. */
  readonly #siblings;
  readonly #open = new Set<Environment | Player>();
  readonly #closing: Promise<void>[] = [];
  readonly #errors: unknown[] = [];
  #isOver = false;
  #numSucceeded = 0;
  #numRetries = 0;

  constructor(
    group: EnvironmentGroup,
    policy: Policy,
    options: RolloutGroupOptions & { readonly strategy: RolloutStrategy },
  ) {
    this.#group = group;
    this.#policy = policy;
    this.#options = options;
    this.#siblings = linkSignals(options.signal);
  }

  get failures(): readonly RolloutFailure[] {
    return this.#errors.map((error) => ({ type: typeOf(error), message: messageOf(error) }));
  }

  /** An error of the whole group that belongs to no single episode. */
  note(error: unknown): void {
    if (error instanceof TooFewEpisodesError || this.#errors.includes(error)) return;
    this.#errors.push(error);
  }

  async play(): Promise<Graded> {
    const environments = await this.#make();
    const groupSize = environments.length;
    if (groupSize === 0) throw new TinkerError("makeEnvironments must give at least one environment.");
    const members = environments.map((environment, member) =>
      this.#play(environment, member, groupSize).catch((error: unknown) => {
        this.#siblings.signal.abort(error);
        throw error;
      }),
    );
    await Promise.allSettled(members);
    // The first failure has ended the others.
    if (this.#siblings.signal.aborted) throw this.#siblings.signal.reason;
    const played = (await Promise.all(members)).filter((each) => each !== undefined);
    const needed = this.#options.strategy.minSuccessful(groupSize);
    if (played.length < needed) {
      const last = this.failures.at(-1)?.message;
      throw new TooFewEpisodesError(
        `${played.length} of ${groupSize} episodes succeeded, which is less than ${needed}. The last error: ${last}`,
      );
    }
    const trajectories = played.map(({ trajectory }) => trajectory);
    const rewards = await gradeGroup(
      this.#group,
      trajectories,
      played.map(({ environment }) => environment),
      { ...this.#options, signal: this.#siblings.signal },
    );
    return {
      trajectories,
      groupRewards: rewards.map(({ reward }) => reward),
      metrics: rewards.map(({ metrics }) => metrics),
    };
  }

  /** Closes every environment that is still open. */
  async close(): Promise<void> {
    this.#isOver = true;
    this.#siblings.release();
    for (const environment of this.#open) this.#close(environment);
    await Promise.all(this.#closing);
    const failure = await closeEnvironment(this.#group, this.#options.clock);
    if (failure !== undefined) this.#errors.push(failure);
  }

  /** Runs one episode of the group, with the strategy's retries; undefined if the group continues without it. */
  async #play(first: Environment | Player, member: number, groupSize: number): Promise<Played | undefined> {
    let environment = first;
    for (let attempt = 0; ; attempt++) {
      try {
        const trajectory = await this.#try(environment, member, attempt);
        this.#numSucceeded += 1;
        // Graders may still read it.
        if (this.#group.groupRewards === undefined) this.#close(environment);
        return { trajectory, environment };
      } catch (error) {
        this.#close(environment);
        if (this.#siblings.signal.aborted || concernsRun(error)) throw error;
        this.#errors.push(error);
        const { strategy } = this.#options;
        const progress = { groupSize, numSucceeded: this.#numSucceeded, numRetries: this.#numRetries };
        const decision = strategy.afterFailure(progress);
        if (decision === "drop") return undefined;
        if (decision === "fail") throw error;
        this.#numRetries += 1;
        environment = await this.#makeAgain(member);
      }
    }
  }

  async #try(environment: Environment | Player, member: number, attempt: number): Promise<Trajectory> {
    const { strategy, pool, seed, clock } = this.#options;
    const { signal } = this.#siblings;
    const play = () =>
      withinTime("An episode", strategy.timeoutMs, { signal, clock }, (limited) =>
        playEpisode(this.#policy, environment, {
          ...this.#options,
          signal: limited,
          seed: seed === undefined ? undefined : derivedSeed(seed, member, attempt),
        }),
      );
    return await (pool === undefined ? play() : pool.run(play, signal));
  }

  /** The member at the same position in a new group; its other members are not needed. */
  async #makeAgain(member: number): Promise<Environment | Player> {
    const fresh = await this.#make();
    for (const [place, environment] of fresh.entries()) if (place !== member) this.#close(environment);
    const environment = fresh[member];
    if (environment !== undefined) return environment;
    throw new TinkerError(`makeEnvironments gave ${fresh.length} environments, fewer than the first time.`);
  }

  /** May take as long as an episode. Environments that arrive later are closed on arrival. */
  async #make(): Promise<readonly (Environment | Player)[]> {
    const { strategy, limits, clock } = this.#options;
    const making = settled(() => this.#group.makeEnvironments());
    making.then(
      (made) => {
        for (const environment of made) {
          this.#open.add(environment);
          if (this.#isOver) this.#close(environment);
        }
      },
      () => {},
    );
    const { signal } = this.#siblings;
    const timeoutMs = strategy.timeoutMs ?? limits?.timeoutMs;
    return await withinTime("makeEnvironments", timeoutMs, { signal, clock }, () => making);
  }

  #close(environment: Environment | Player): void {
    if (!this.#open.delete(environment)) return;
    const closing = closeEnvironment(environment, this.#options.clock).then((failure) => {
      if (failure !== undefined) this.#errors.push(failure);
    });
    this.#closing.push(closing);
  }
}

/** The name of the class, which people search for. */
function typeOf(error: unknown): string {
  if (error instanceof RewardError) return typeOf(error.cause);
  if (!(error instanceof Error)) return typeof error;
  return error.name === "Error" ? error.constructor.name : error.name;
}
