import type { SamplingClient } from "../../clients/index.js";
import { messageOf, TinkerError } from "../../errors.js";
import type { Renderer } from "../../renderers/index.js";
import { untilAborted } from "../../transport/index.js";
import * as f from "../../wire/fields/index.js";
import { AGENT_OPTION, isGroupReward } from "../agents/agent.js";
import type { AgentOptions } from "../agents/index.js";
import {
  type EnvironmentGroup,
  type GroupSource,
  PROBLEM_OPTIONS,
  type Problem,
  type ProblemGroupOptions,
  problemGroups,
  type TrajectoryGroup,
} from "../environments/index.js";
import { settled } from "../environments/within-time.js";
import {
  derivedSeed,
  type Policy,
  type RolloutHooks,
  RolloutPool,
  type RolloutSettings,
  type RolloutStrategy,
  rolloutDefaults,
  runRolloutGroup,
  samplerPolicy,
} from "../rollouts/index.js";
import { closeEnvironment } from "../rollouts/run-rollout.js";
import { ROLLOUT_OPTIONS, RUN_ROLLOUT_OPTIONS } from "../rollouts/settings.js";
import { STRATEGY_OPTION } from "../rollouts/strategies.js";
import type { SamplerWeights } from "./group-feed.js";

/** Settings of the run that environments are made for. */
export interface EnvironmentsContext {
  readonly renderer: Renderer;
  readonly groupSize: number;
  readonly seed: number;
}

/** Problems with a reward function: the simple form. */
export interface ProblemOptions<P extends Problem>
  extends Pick<ProblemGroupOptions<P>, "problems" | "reward" | "format" | "formatWeight" | "tags"> {
  readonly environments?: undefined;
  readonly agent?: undefined;
}

type NoProblems = {
  readonly [K in keyof Omit<ProblemOptions<Problem>, "environments" | "agent">]?: undefined;
};

/** Options for environments of any kind. */
export interface EnvironmentOptions extends NoProblems {
  /** The groups, or a function that makes them once the renderer is known. A run closes them when it ends. */
  readonly environments: GroupSource | ((context: EnvironmentsContext) => GroupSource | Promise<GroupSource>);
  readonly agent?: undefined;
}

/** Problems, environments or an agent: where a model acts. */
export type SourceOptions<P extends Problem> = ProblemOptions<P> | EnvironmentOptions | AgentOptions<P>;

type GivenReward = ProblemOptions<Problem>["reward"] | AgentOptions<Problem>["reward"];

/** The option table for problems, environments and agents. */
export const SOURCE_OPTIONS = {
  problems: { ...PROBLEM_OPTIONS.problems, presence: "optional" as const },
  reward: f.option(
    f.optional(
      f.value<GivenReward>(
        "a function of an answer, as ({ problem, text }) => 1",
        (given) => typeof given === "function" || isGroupReward(given),
      ),
    ),
    PROBLEM_OPTIONS.reward.notes.help,
  ),
  format: PROBLEM_OPTIONS.format,
  formatWeight: { ...PROBLEM_OPTIONS.formatWeight, presence: "optional" as const, fallback: undefined },
  tags: PROBLEM_OPTIONS.tags,
  environments: f.option(
    f.optional(f.opaque as f.Field<EnvironmentOptions["environments"]>),
    "environments in place of problems and a reward",
  ),
  agent: AGENT_OPTION,
};

/** Options of a model's rollouts: tokens, temperature, limits and hooks. */
export interface ActingOptions extends RolloutSettings {
  /** Most tokens of an answer. Default: the rest of the context. */
  readonly maxTokens?: number | undefined;
  /** Sampling temperature. Default: 1, at which the loss matches the sampled distribution. */
  readonly temperature?: number | undefined;
  /** Handling of failed episodes. Default: `failFast()`, which ends the run. */
  readonly strategy?: RolloutStrategy | undefined;
  readonly hooks?: RolloutHooks | undefined;
  /** Most episodes that run at the same time. Default: 1024; 32 if each is a separate process. */
  readonly concurrency?: number | undefined;
}

/** The option table of a model's rollouts. */
export const ACTING_OPTIONS = {
  ...ROLLOUT_OPTIONS,
  maxTokens: f.option(f.optional(f.positiveInteger), "tokens of an answer", {
    otherwise: "what is left of the context",
    flag: true,
    config: "max_tokens",
  }),
  temperature: f.option(f.withDefault(f.positive, 1), "sampling temperature", {
    flag: true,
    config: "temperature",
  }),
  strategy: STRATEGY_OPTION,
  hooks: RUN_ROLLOUT_OPTIONS.fields.hooks,
  concurrency: f.option(f.optional(f.positiveInteger), "episodes that run at a time", {
    otherwise: "1024; 32 where each is a process of its own",
    flag: true,
    config: "concurrency",
  }),
} satisfies f.OptionsOf<ActingOptions>;

/** Refuses options from which no groups can be made. */
export function checkSource<P extends Problem>(options: SourceOptions<P>): void {
  const { problems, reward, environments, agent } = options;
  if (environments === undefined) {
    if (problems === undefined)
      throw f.wrongValue("problems", "a list of problems, or anything else that can be iterated", problems);
    if (agent !== undefined) checkAgentSource(options);
    else if (isGroupReward(reward))
      throw f.wrongField(
        "reward",
        "compares the episodes of an agent: give agent, or a function of an answer",
      );
    if (typeof reward !== "function" && !(agent !== undefined && isGroupReward(reward)))
      throw f.wrongValue("reward", "a function of an answer, as ({ problem, text }) => 1", reward);
    return;
  }
  if (agent !== undefined)
    throw f.wrongField("agent", "and environments are two kinds of episodes: give one");
  if (problems !== undefined || reward !== undefined) {
    throw f.wrongField("environments", "have problems and rewards of their own: give either those or these");
  }
  const isSource = typeof (environments as Partial<GroupSource> | null)?.group === "function";
  if (!isSource && typeof environments !== "function")
    throw f.wrongValue("environments", "a source of groups, or a function that makes one", environments);
}

function checkAgentSource({ format, formatWeight }: { format?: unknown; formatWeight?: unknown }): void {
  const given = format !== undefined ? "format" : formatWeight !== undefined ? "formatWeight" : undefined;
  if (given !== undefined)
    throw f.wrongField(given, "cannot be combined with an agent: let reward check the form");
}

/** Parts of a run that only agents use. */
export interface AgentRun {
  readonly model: string;
  readonly maxContextLength: number | undefined;
  /** Folder in which their sessions are recorded. */
  readonly folder?: string | undefined;
}

/** The groups that the options describe. `run` is needed for agents. */
export async function openSource<P extends Problem>(
  options: SourceOptions<P>,
  context: EnvironmentsContext,
  run?: AgentRun,
): Promise<GroupSource> {
  if (options.agent !== undefined) {
    if (run === undefined) throw f.wrongField("agent", "cannot be used here");
    const { agentGroups } = await import("../agents/agent-groups.node.js");
    return agentGroups(options, { ...context, ...run });
  }
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

/** A source or a group; if the signal aborts before it is there, it is closed on arrival. */
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

/** Samples each answer with the current weights, and records which they were. */
function policyOf(
  weights: () => SamplerWeights<SamplingClient>,
  settings: Parameters<typeof samplerPolicy>[1],
): Policy {
  const current = () => {
    const { sampler, step: samplerStep } = weights();
    const sampling = samplerPolicy(sampler, settings);
    const act: Policy["act"] = async (observation, call) => ({
      ...(await sampling.act(observation, call)),
      samplerStep,
    });
    return { policy: { act }, samplerStep };
  };
  return { act: (observation, call) => current().policy.act(observation, call), current };
}

/** Episodes of an agent that is a program run so many at a time, each a process of its own. */
const MAX_PROCESSES = 32;

/** The places for episodes of a run. */
export function rolloutPool({
  concurrency,
  agent,
}: Pick<ActingOptions, "concurrency"> & { readonly agent?: unknown }): RolloutPool {
  const isProgram = agent !== undefined && typeof agent !== "function";
  return new RolloutPool({ maxRollouts: concurrency ?? (isProgram ? MAX_PROCESSES : undefined) });
}

/** Runs a group of the source; undefined after the last one. */
export async function runGroup(
  source: GroupSource,
  index: number,
  weights: () => SamplerWeights<SamplingClient>,
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
    return await runRolloutGroup(group, policyOf(weights, { maxTokens, temperature }), {
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
