import type { Message } from "../../renderers/index.js";
import type { Clock } from "../../transport/index.js";
import type { ModelInput, StopReason } from "../../wire/index.js";
import type { ParseErrorPolicy, RolloutLimits, TerminationPolicy, ToolExecution } from "./limits.js";

/** Metrics of a turn or an episode, averaged over those that have them. */
export type Metrics = Readonly<Record<string, number>>;
/** Text about a turn for people who inspect it. */
export type Logs = Readonly<Record<string, string | number>>;

/** Why an episode ended. Each reason is counted as the metric `stop/REASON`; hooks may return their own reasons. */
export type EpisodeEnd =
  | "completed"
  | "tool_stopped"
  | "max_turns"
  | "max_tokens"
  | "max_sampled_tokens"
  | "max_tool_calls"
  | "context_overflow"
  | "parse_error"
  | "rollout_timeout";

/** Prompt that the model reads next, and the stop sequences of its answer. */
export interface Observation {
  readonly prompt: ModelInput;
  readonly stop: readonly string[] | readonly number[];
}

/** Answer of the model: exactly the tokens that were sampled. */
export interface Action {
  readonly tokens: Int32Array;
  /** Logprob of each token when it was sampled. */
  readonly logprobs: Float32Array;
  /** Why the answer ended; `length`: a limit cut it off. */
  readonly stopReason: StopReason;
  /** Training steps of the weights that sampled it, if known. */
  readonly samplerStep?: number | undefined;
}

/** How one answer is sampled. */
export interface PolicyCall {
  /** Tokens left for this answer, if something limits them. */
  readonly maxTokens?: number | undefined;
  /** Seed of the answer; the same seed gives the same answer. */
  readonly seed?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Model that acts in an environment: tokens in, tokens out. */
export interface Policy {
  act(observation: Observation, call?: PolicyCall): Promise<Action>;
  /** The policy with the weights that it has now, and their age; absent if it always has the same. */
  current?(): { readonly policy: Policy; readonly samplerStep: number };
}

/** Response of an environment to an answer: reward, and the next observation. */
export interface StepResult {
  readonly reward: number;
  readonly isDone: boolean;
  /** Next prompt; needed unless the episode is done. */
  readonly next?: Observation | undefined;
  /** Why the episode is done, if the environment knows. */
  readonly end?: EpisodeEnd | (string & {}) | undefined;
  /** True if the answer could not be parsed and must not be trained on. */
  readonly isMasked?: boolean | undefined;
  readonly metrics?: Metrics | undefined;
  readonly logs?: Logs | undefined;
}

/** The first prompt is already too long: the episode ends before anything is sampled. */
export interface PromptOverflow {
  readonly overflow: true;
  readonly reward: number;
  readonly metrics?: Metrics | undefined;
  readonly logs?: Logs | undefined;
}

/** Settings of the rollout that an environment runs in. */
export interface RolloutContext {
  /** Aborted when the rollout ends, for any reason. */
  readonly signal: AbortSignal;
  readonly limits: RolloutLimits;
  readonly parseErrors?: ParseErrorPolicy | undefined;
  /** Time limit of grading, and the part of the conversation that a grader sees. */
  readonly termination?: TerminationPolicy | undefined;
  readonly toolExecution: ToolExecution;
}

/** A world in which a model acts for one episode. */
export interface Environment {
  /** Starts the episode; called once. */
  start(context: RolloutContext): Promise<Observation | PromptOverflow>;
  step(action: Action): Promise<StepResult>;
  /** Adds messages to the conversation before the next turn, for hooks; absent if that is not possible. */
  addMessages?(messages: readonly Message[]): Promise<Observation | undefined>;
  /** The conversation so far, for display. */
  messages?(): readonly Message[];
  /** Releases the episode's resources. Called once, however the episode ended, even before `start` or during `step`. */
  close?(): void | Promise<void>;
}

/** Settings of the rollout that a player runs in. */
export interface PlayContext extends RolloutContext {
  /** Seed from which the seeds of the answers derive. */
  readonly seed?: number | undefined;
  readonly clock: Clock;
}

/**
 * An episode that drives itself, such as a program that calls the model at any time: it plays a whole episode
 * with the policy, keeps the limits, and returns what was read and sampled.
 */
export interface Player {
  /** Plays the episode; called once. An episode that a limit ends counts too. */
  play(policy: Policy, context: PlayContext): Promise<Trajectory>;
  /** Releases the episode's resources. Called once, however the episode ended, even before or during `play`. */
  close?(): void | Promise<void>;
}

/** One turn of an episode: observation, action and reward. */
export interface Turn {
  readonly observation: ModelInput;
  readonly action: Action;
  readonly reward: number;
  readonly isDone: boolean;
  readonly isMasked: boolean;
  readonly metrics: Metrics;
  readonly logs: Logs;
}

/** A finished episode: its turns and how it ended. */
export interface Trajectory {
  readonly turns: readonly Turn[];
  /** Prompt that the model would have read next. */
  readonly finalObservation: ModelInput;
  readonly end?: EpisodeEnd | (string & {}) | undefined;
  /** Messages of the conversation, if the environment has one. */
  readonly messages?: readonly Message[] | undefined;
}

/** Reward that a whole group gives to one of its episodes. */
export interface GroupReward {
  readonly reward: number;
  readonly metrics?: Metrics | undefined;
}

/** Environments whose rewards are compared: usually several attempts at one problem. */
export interface EnvironmentGroup {
  /**
   * Makes new environments on each call; called again when a rollout is repeated. Allocate expensive resources in their
   * `start`, which runs when the episode has a place.
   */
  makeEnvironments(): readonly (Environment | Player)[] | Promise<readonly (Environment | Player)[]>;
  /** Rewards that depend on all episodes, added to those of the turns. Default: none. */
  groupRewards?(
    trajectories: readonly Trajectory[],
    context: { readonly environments: readonly (Environment | Player)[]; readonly signal: AbortSignal },
  ): readonly GroupReward[] | Promise<readonly GroupReward[]>;
  /** Called once after the rollouts, however they ended. */
  close?(): void | Promise<void>;
  /** Tags under which the group's metrics are also counted, such as the data set or the kind of problem. */
  readonly tags?: readonly string[] | undefined;
}

/** The groups that a run trains on, by number: the same number is always the same group. */
export interface GroupSource {
  /** Number of groups in an epoch, if known; numbering continues in the next epoch. */
  readonly length?: number | undefined;
  /** Returns the group with this number, or undefined after the last one. */
  group(index: number): EnvironmentGroup | undefined | Promise<EnvironmentGroup | undefined>;
  close?(): void | Promise<void>;
}

/** An episode that failed, or an environment that could not be closed, in a group that continues. */
export interface RolloutFailure {
  readonly type: string;
  readonly message: string;
}

/** The episodes of a group with their rewards; empty if the group failed and the run continues without it. */
export interface TrajectoryGroup {
  readonly trajectories: readonly Trajectory[];
  /** Reward that `groupRewards` gave each episode. */
  readonly groupRewards: readonly number[];
  readonly metrics: readonly Metrics[];
  readonly failures: readonly RolloutFailure[];
  readonly tags: readonly string[];
}

/** The reward of each episode: the sum of its turns, plus the group's reward. */
export function totalRewards({ trajectories, groupRewards }: TrajectoryGroup): number[] {
  return trajectories.map(
    ({ turns }, place) => turns.reduce((sum, { reward }) => sum + reward, 0) + groupRewards[place]!,
  );
}
