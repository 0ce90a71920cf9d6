import type { SamplingClient } from "../../clients/index.js";
import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import type { Renderer } from "../../renderers/index.js";
import { untilAborted } from "../../transport/index.js";
import { wrongValue } from "../../wire/index.js";
import {
  type EnvironmentGroup,
  type GroupSource,
  type Problem,
  type ProblemGroupOptions,
  problemGroups,
  type TrajectoryGroup,
} from "../environments/index.js";
import { settled } from "../environments/within-time.js";
import {
  derivedSeed,
  type RolloutHooks,
  type RolloutPool,
  type RolloutSettings,
  type RolloutStrategy,
  rolloutDefaults,
  rolloutGroup,
  samplerPolicy,
} from "../rollouts/index.js";
import { closeEnvironment } from "../rollouts/run-rollout.js";

/** What environments are made for. */
export interface EnvironmentsContext {
  readonly renderer: Renderer;
  readonly groupSize: number;
  readonly seed: number;
}

/** Problems with a reward function: the short way. */
export interface ProblemOptions<P extends Problem>
  extends Pick<ProblemGroupOptions<P>, "problems" | "reward" | "format" | "formatWeight" | "tags"> {
  readonly environments?: undefined;
}

type NoProblems = { readonly [K in keyof Omit<ProblemOptions<Problem>, "environments">]?: undefined };

/** Environments of any kind. */
export interface EnvironmentOptions extends NoProblems {
  /** The groups themselves, or what makes them once the renderer is known. A run closes them when it is over. */
  readonly environments: GroupSource | ((context: EnvironmentsContext) => GroupSource | Promise<GroupSource>);
}

/** What a model acts in. */
export type SourceOptions<P extends Problem> = ProblemOptions<P> | EnvironmentOptions;

/** The names of all these options. */
export const SOURCE_KEYS = [
  "problems",
  "reward",
  "format",
  "formatWeight",
  "tags",
  "environments",
] as const satisfies (keyof ProblemOptions<Problem>)[];

/** How a model acts in it. */
export interface ActingOptions extends RolloutSettings {
  /** Tokens of an answer. Default: what the model has room for. */
  readonly maxTokens?: number | undefined;
  /** Of the samples. Default: 1, with which the loss fits what was sampled. */
  readonly temperature?: number | undefined;
  /** What is done about episodes that fail. Default: `failFast()`, they end the run. */
  readonly strategy?: RolloutStrategy | undefined;
  readonly hooks?: RolloutHooks | undefined;
}

/** The names of all these options. */
export const ACTING_KEYS = [
  ...(["maxTokens", "temperature", "strategy", "hooks"] as const),
  ...(["limits", "parseErrors", "termination", "toolExecution"] as const),
] satisfies (keyof ActingOptions)[];

/** Refuses what no groups could be made of. */
export function checkSource<P extends Problem>({ problems, reward, environments }: SourceOptions<P>): void {
  if (environments === undefined) {
    if (problems === undefined)
      throw wrongValue("problems", "a list of problems, or anything else that can be iterated", problems);
    if (typeof reward !== "function")
      throw wrongValue("reward", "a function of an answer, as ({ problem, text }) => 1", reward);
    return;
  }
  if (problems !== undefined || reward !== undefined) {
    throw new ValidationError(
      "environments",
      "environments have problems and rewards of their own: give either those or these",
    );
  }
  const isSource = typeof (environments as Partial<GroupSource> | null)?.group === "function";
  if (!isSource && typeof environments !== "function")
    throw wrongValue("environments", "a source of groups, or a function that makes one", environments);
}

/** The groups that the options stand for. */
export async function openSource<P extends Problem>(
  options: SourceOptions<P>,
  context: EnvironmentsContext,
): Promise<GroupSource> {
  if (options.environments === undefined) {
    const { problems, reward, format, formatWeight, tags } = options;
    return problemGroups({ problems, reward, format, formatWeight, tags, ...context });
  }
  const { environments } = options;
  if (typeof environments !== "function") return environments;
  const made = await environments(context);
  checkSource({ environments: made });
  return made;
}

/** A source or a group, unless the signal aborts before it is there; then it is closed when it comes. */
export async function openUntilAborted<T extends GroupSource | EnvironmentGroup | undefined>(
  opening: Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  try {
    return await untilAborted(opening, signal);
  } catch (error) {
    opening.then(
      (late) => late && closeEnvironment(late),
      () => {},
    );
    throw error;
  }
}

/** Lets a model act in a group of the source; undefined behind the last one. */
export async function rollOut(
  source: GroupSource,
  index: number,
  sampler: SamplingClient,
  {
    model,
    seed,
    signal,
    pool,
    acting,
  }: {
    readonly model: string;
    readonly seed: number;
    readonly signal: AbortSignal;
    readonly pool: RolloutPool;
    readonly acting: ActingOptions;
  },
): Promise<TrajectoryGroup | undefined> {
  const { maxTokens, temperature = 1, ...given } = acting;
  const defaults = rolloutDefaults(model);
  try {
    const finding = settled(() => source.group(index));
    const group = await openUntilAborted(finding, signal);
    if (group === undefined) return undefined;
    return await rolloutGroup(group, samplerPolicy(sampler, { maxTokens, temperature }), {
      limits: given.limits ?? defaults.limits,
      parseErrors: given.parseErrors ?? defaults.parseErrors,
      termination: given.termination ?? defaults.termination,
      toolExecution: given.toolExecution ?? defaults.toolExecution,
      strategy: given.strategy ?? defaults.strategy,
      hooks: given.hooks,
      seed: derivedSeed(seed, index),
      signal,
      pool,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new TinkerError(`Group ${index} failed: ${messageOf(error)}`, { cause: error });
  }
}
