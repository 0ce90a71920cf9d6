import type { Message } from "../../renderers/index.js";
import type { ModelInput, StopReason } from "../../wire/index.js";
import type { ParseErrorPolicy, RolloutLimits, TerminationPolicy, ToolExecution } from "./limits.js";

/** Numbers of a turn or an episode, averaged over those that have them. */
export type Metrics = Readonly<Record<string, number>>;
/** What a person who looks at a turn wants to read. */
export type Logs = Readonly<Record<string, string | number>>;

/** Why an episode ended. It is also counted, as `stop/REASON`; hooks may give reasons of their own. */
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

/** What the model reads next, and what ends its answer. */
export interface Observation {
  readonly prompt: ModelInput;
  readonly stop: readonly string[] | readonly number[];
}

/** What the model answered: exactly the tokens that were sampled. */
export interface Action {
  readonly tokens: Int32Array;
  /** Of each token, when it was sampled. */
  readonly logprobs: Float32Array;
  /** `length`: it was cut off by a limit. */
  readonly stopReason: StopReason;
}

/** What an environment makes of an answer. */
export interface StepResult {
  readonly reward: number;
  readonly isDone: boolean;
  /** Needed unless the episode is done. */
  readonly next?: Observation | undefined;
  /** Why the episode is done, where the environment knows. */
  readonly end?: EpisodeEnd | (string & {}) | undefined;
  /** True for an answer that could not be read and shall not be trained on. */
  readonly isMasked?: boolean | undefined;
  readonly metrics?: Metrics | undefined;
  readonly logs?: Logs | undefined;
}

/** The first prompt is too long already: the episode ends before anything is sampled. */
export interface PromptOverflow {
  readonly overflow: true;
  readonly reward: number;
  readonly metrics?: Metrics | undefined;
  readonly logs?: Logs | undefined;
}

/** What an environment may know of the rollout it is part of. */
export interface RolloutContext {
  /** Aborted when the rollout is over, whatever the reason. */
  readonly signal: AbortSignal;
  readonly limits: RolloutLimits;
  readonly parseErrors?: ParseErrorPolicy | undefined;
  /** How long a grade may take, and what of the conversation it sees. */
  readonly termination?: TerminationPolicy | undefined;
  readonly toolExecution: ToolExecution;
}

/** A world that one model acts in for one episode. */
export interface Environment {
  /** Called once. */
  start(context: RolloutContext): Promise<Observation | PromptOverflow>;
  step(action: Action): Promise<StepResult>;
  /** Puts messages into the conversation before the next turn, for hooks; undefined where that is not possible. */
  addMessages?(messages: readonly Message[]): Promise<Observation | undefined>;
  /** The conversation so far, to be shown. */
  messages?(): readonly Message[];
  /** Gives back what the episode took: called once however it ended, also before `start` and while `step` is under way. */
  close?(): void | Promise<void>;
}

/** One turn of an episode. */
export interface Turn {
  readonly observation: ModelInput;
  readonly action: Action;
  readonly reward: number;
  readonly isDone: boolean;
  readonly isMasked: boolean;
  readonly metrics: Metrics;
  readonly logs: Logs;
}

/** An episode that is over. */
export interface Trajectory {
  readonly turns: readonly Turn[];
  /** What the model would have read next. */
  readonly finalObservation: ModelInput;
  readonly end?: EpisodeEnd | (string & {}) | undefined;
  /** The conversation, where the environment has one. */
  readonly messages?: readonly Message[] | undefined;
}

/** What the whole group decides about one of its episodes. */
export interface GroupReward {
  readonly reward: number;
  readonly metrics?: Metrics | undefined;
}

/** Environments whose rewards are compared with each other: usually several tries at one problem. */
export interface EnvironmentGroup {
  /**
   * New ones each time it is called, which it is again when a rollout is tried again. What costs much is better taken in
   * their `start`, when there is a place for the episode.
   */
  makeEnvironments(): readonly Environment[] | Promise<readonly Environment[]>;
  /** Rewards that depend on all episodes, added to those of the turns. Default: none. */
  groupRewards?(
    trajectories: readonly Trajectory[],
    context: { readonly environments: readonly Environment[]; readonly signal: AbortSignal },
  ): readonly GroupReward[] | Promise<readonly GroupReward[]>;
  /** Called once however the rollouts ended. */
  close?(): void | Promise<void>;
  /** Names under which the metrics of this group are counted too: the data set, the kind of problem. */
  readonly tags?: readonly string[] | undefined;
}

/** The groups that a run trains on, by their number: the same number is the same group whenever it is asked for. */
export interface GroupSource {
  /** How many make an epoch, where that is known: the numbers go on with the next one. */
  readonly length?: number | undefined;
  /** Undefined behind the last one, where they end. */
  group(index: number): EnvironmentGroup | undefined | Promise<EnvironmentGroup | undefined>;
  close?(): void | Promise<void>;
}

/** An episode that failed, or an environment that could not be closed, in a group that goes on. */
export interface RolloutFailure {
  readonly type: string;
  readonly message: string;
}

/** The episodes of a group with their rewards; none where the group failed and the run goes on without it. */
export interface TrajectoryGroup {
  readonly trajectories: readonly Trajectory[];
  /** What `groupRewards` said of each. */
  readonly groupRewards: readonly number[];
  readonly metrics: readonly Metrics[];
  readonly failures: readonly RolloutFailure[];
  readonly tags: readonly string[];
}

/** The reward of each episode: that of its turns, and that of the group. */
export function totalRewards({ trajectories, groupRewards }: TrajectoryGroup): number[] {
  return trajectories.map(
    ({ turns }, place) => turns.reduce((sum, { reward }) => sum + reward, 0) + groupRewards[place]!,
  );
}
