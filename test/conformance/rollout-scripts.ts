/** Episodes and groups as scripts that Python and we play alike, in a time that is only imagined. */

import type { TerminationPolicy } from "../../src/cookbook/environments/index.js";
import {
  type Environment,
  type EnvironmentGroup,
  failFast,
  minViableGroup,
  type RolloutHooks,
  type RolloutLimits,
  type RolloutStrategy,
  retryOnFailure,
  runRollout,
  runRolloutGroup,
  type StepResult,
  type Trajectory,
} from "../../src/cookbook/index.js";
import type { Policy } from "../../src/cookbook/rollouts/index.js";
import { FailureCounts, type RolloutState } from "../../src/cookbook/rollouts/index.js";
import { ModelInput } from "../../src/wire/index.js";
import { FakeClock } from "../support/fake-clock.js";
import type { Random } from "./random.js";

interface Waiting {
  /** In milliseconds. */
  readonly delay?: number | "never";
  /** `timeout`: Python's own kind of error for what took too long, from the environment itself. */
  readonly error?: string;
}

interface StepScript extends Waiting {
  readonly reward: number | "nan";
  readonly done: boolean;
  readonly end?: string;
  /** Of what is read next; 0 for nothing. */
  readonly length: number;
  readonly masked?: boolean;
  readonly metrics?: Record<string, number>;
  readonly logs?: Record<string, string | number>;
}

interface EpisodeScript {
  readonly start: Waiting & { readonly length: number; readonly overflow?: number };
  readonly steps: readonly StepScript[];
  /** Whether messages can be added. */
  readonly talks?: boolean;
}

interface HooksScript {
  /** Messages added before each turn. */
  readonly added?: readonly number[];
  /** What `onStop` says, one after the other: `accept`, `clear`, or another reason. */
  readonly answers?: readonly string[];
  readonly endDelay?: number;
}

/** One episode, in Python's names where they are settings. */
export interface RolloutCase {
  readonly script: EpisodeScript;
  readonly actions: readonly (Waiting & { readonly length: number; readonly stop?: "stop" | "length" })[];
  readonly limits?: Readonly<Record<string, number>>;
  readonly hooks?: HooksScript;
}

export interface GroupCase {
  readonly script: {
    readonly members: readonly EpisodeScript[];
    /** What the environments of the second making do, of the third, and so on. */
    readonly again: readonly EpisodeScript[];
    readonly making?: Waiting;
    readonly grading: Waiting & { readonly factor: number; readonly bonus: number };
  };
  readonly strategy: {
    readonly kind: "failFast" | "retryOnFailure" | "minViableGroup";
    readonly maxRetries?: number;
    readonly minSuccessful?: number;
    /** In seconds. */
    readonly timeout?: number;
  };
  readonly termination?: Readonly<Record<string, unknown>>;
}

export interface PlayedRollout {
  readonly ok?: { readonly end: string | null };
  readonly error?: string;
  /** Of each: the length of the prompt, and the tokens it may sample. */
  readonly calls: readonly (readonly (number | null)[])[];
  readonly told: readonly (readonly (string | number)[])[] | null;
}

export interface PlayedGroup {
  readonly ok?: readonly object[];
  readonly skipped?: true;
  readonly error?: string;
  readonly failures?: Readonly<Record<string, number>>;
  readonly makings: number;
  readonly cleanups: number;
  readonly gradings: number;
}

const ENDS = ["completed", "max_turns", "max_tokens", "tool_stopped", "rollout_timeout", "parse_error"];

/** Large and odd, so that no two things ever happen at the same time. */
const delay = (random: Random): number => 2 * random.integer(1, 500_000_000) + 1;

function waiting(random: Random, canHang: boolean): Waiting {
  if (canHang && random.chance(0.05)) return { delay: "never" };
  return {
    ...(random.chance(0.7) && { delay: delay(random) }),
    ...(random.chance(0.03) && { error: random.pick(["broken", "broken", "timeout"]) }),
  };
}

function episodeScript(random: Random, canHang: boolean, oddRewards = 0): EpisodeScript {
  const numSteps = random.integer(0, 5);
  return {
    start: {
      length: random.integer(1, 12),
      ...(random.chance(0.05) && { overflow: random.pick([0, -0.5, 0.25]) }),
      ...waiting(random, canHang),
    },
    steps: random.times(numSteps, (each): StepScript => {
      const done = each.chance(0.2);
      return {
        reward: each.chance(oddRewards) ? "nan" : each.pick([0, 1, -1, 0.1, 0.5, 1 / 3]),
        done,
        ...(done && each.chance(0.8) && { end: each.pick(ENDS) }),
        length: done && each.chance(0.5) ? 0 : each.integer(1, 40),
        ...(each.chance(0.2) && { masked: true }),
        ...(each.chance(0.3) && { metrics: { moves: each.integer(0, 5) } }),
        ...(each.chance(0.3) && { logs: { saw: each.pick(["a door", "nothing"]) } }),
        ...waiting(each, canHang),
      };
    }),
    ...(random.chance(0.7) && { talks: true }),
  };
}

export function rolloutCase(random: Random): RolloutCase {
  const some = <T>(chance: number, make: () => T) => (random.chance(chance) ? make() : undefined);
  const limits = withoutUndefined({
    max_turns: some(0.3, () => random.integer(1, 5)),
    max_trajectory_tokens: some(0.3, () => random.integer(1, 45)),
    max_sampled_tokens: some(0.3, () => random.integer(1, 20)),
    max_turn_tokens: some(0.3, () => random.integer(1, 6)),
    rollout_timeout_seconds: some(0.4, () => (2 * random.integer(1, 1_500_000_000)) / 1000),
    sampling_turn_timeout_seconds: some(0.2, () => (2 * random.integer(1, 600_000_000)) / 1000),
  });
  const canHang = "rollout_timeout_seconds" in limits;
  return {
    script: episodeScript(random, canHang, 0.01),
    actions: random.times(random.integer(0, 5), (each) => ({
      length: each.integer(0, 8),
      stop: each.pick(["stop", "stop", "length"] as const),
      ...waiting(each, canHang),
    })),
    ...(Object.keys(limits).length > 0 && { limits }),
    ...(random.chance(0.6) && {
      hooks: {
        added: random.times(random.integer(0, 3), (each) => each.pick([0, 0, 1, 2])),
        answers: random.times(random.integer(0, 4), (each) =>
          each.pick(["accept", "clear", "clear", "my_own", "max_tokens"]),
        ),
        ...(random.chance(0.3) && { endDelay: delay(random) }),
      },
    }),
  };
}

export function groupCase(random: Random): GroupCase {
  const kind = random.pick(["failFast", "retryOnFailure", "minViableGroup"] as const);
  const hasTimeout = kind !== "failFast" && random.chance(0.5);
  const member = (failures: number): EpisodeScript => {
    const script = unhurried(random, episodeScript(random, hasTimeout));
    return random.chance(failures) ? failing(script) : script;
  };
  const members = random.times(random.integer(1, 6), () => member(0.25));
  const graderTimeout = random.chance(0.3) ? (2 * random.integer(1, 600_000_000)) / 1000 : undefined;
  return {
    script: {
      members,
      again: random.times(4, () => member(0.4)),
      ...(random.chance(0.3) && { making: waiting(random, false) }),
      grading: {
        factor: random.pick([0, 1, -1]),
        bonus: random.pick([0, 1, -0.5]),
        ...waiting(random, graderTimeout !== undefined),
      },
    },
    strategy: {
      kind,
      ...(kind !== "failFast" && { maxRetries: random.integer(0, 4) }),
      ...(kind === "minViableGroup" &&
        random.chance(0.5) && { minSuccessful: random.integer(1, members.length + 1) }),
      ...(hasTimeout && { timeout: (2 * random.integer(1, 1_000_000_000)) / 1000 }),
    },
    ...((graderTimeout !== undefined || random.chance(0.5)) && {
      termination: withoutUndefined({
        zero_reward_on_limit: random.chance(0.7),
        skip_grading_on_timeout: random.chance(0.5),
        limit_stop_reasons: random.chance(0.3) ? random.times(2, (each) => each.pick(ENDS)) : undefined,
        grader_timeout_seconds: graderTimeout,
      }),
    }),
  };
}

const failing = (script: EpisodeScript): EpisodeScript => ({
  ...script,
  start: { ...script.start, error: "broken" },
});

/** Which of two that end at once comes first, Python does not say. */
const unhurried = (random: Random, script: EpisodeScript): EpisodeScript => ({
  ...script,
  start: { ...script.start, delay: script.start.delay ?? delay(random) },
});

function withoutUndefined<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined> };
}

class ScriptError extends Error {
  override readonly name = "ScriptError";
}
class TimeoutError extends Error {
  override readonly name = "TimeoutError";
}

async function wait(clock: FakeClock, { delay: delayMs = 0, error }: Waiting): Promise<void> {
  if (delayMs === "never") await new Promise(() => {});
  else if (delayMs > 0) await clock.sleep(delayMs);
  if (error === "timeout") throw new TimeoutError("its own");
  if (error !== undefined) throw new ScriptError(error);
}

const observation = (length: number) => ({
  prompt: ModelInput.fromInts(Array.from({ length }, (_, place) => place)),
  stop: [],
});

const LAST_STEP: StepScript = { reward: 1, done: true, end: "completed", length: 0 };

/** Counts how often it was closed. */
type Closable = Environment & { numClosed: number };

function environmentOf(script: EpisodeScript, clock: FakeClock): Closable {
  const steps = script.steps.values();
  let length = 0;
  const environment: Closable = {
    numClosed: 0,
    start: async () => {
      await wait(clock, script.start);
      const { overflow } = script.start;
      if (overflow !== undefined) return { overflow: true, reward: overflow, metrics: { big: 1 } };
      length = script.start.length;
      return observation(length);
    },
    step: async (): Promise<StepResult> => {
      const step = steps.next().value ?? LAST_STEP;
      await wait(clock, step);
      length = step.length;
      const { reward, done, end, masked, metrics, logs } = step;
      return {
        reward: Number(reward),
        isDone: done,
        next: length === 0 ? undefined : observation(length),
        end,
        isMasked: masked,
        metrics,
        logs,
      };
    },
    close: () => {
      environment.numClosed += 1;
    },
  };
  if (!script.talks) return environment;
  return Object.assign(environment, {
    addMessages: async (messages: readonly unknown[]) => {
      length += 2 * messages.length;
      return observation(length);
    },
  });
}

function policyOf(actions: RolloutCase["actions"], clock: FakeClock, calls: (number | null)[][]): Policy {
  const rest = actions.values();
  return {
    act: async ({ prompt }, { maxTokens } = {}) => {
      calls.push([prompt.length, maxTokens ?? null]);
      const action = rest.next().value ?? { length: 2 };
      await wait(clock, action);
      const length = Math.min(action.length, maxTokens ?? Number.POSITIVE_INFINITY);
      return {
        tokens: Int32Array.from({ length }, (_, place) => place),
        logprobs: new Float32Array(length).fill(-0.5),
        stopReason: length < action.length ? "length" : (action.stop ?? "stop"),
      };
    },
  };
}

function hooksOf(
  { added = [], answers = [], endDelay = 0 }: HooksScript,
  clock: FakeClock,
  told: (string | number)[][],
): RolloutHooks {
  const [adding, answering] = [added.values(), answers.values()];
  const tell = (what: string, state: RolloutState) => {
    told.push([what, state.turns.length, state.promptTokens, state.sampledTokens, state.numTruncations]);
  };
  return {
    beforeTurn: (state) => {
      tell("turn", state);
      const count = adding.next().value ?? 0;
      return Array.from({ length: count }, () => ({ role: "user", content: "more" }));
    },
    onStop: (reason, state) => {
      tell(`stop ${reason}`, state);
      const answer = answering.next().value ?? "accept";
      return answer === "clear" ? false : answer === "accept" ? undefined : answer;
    },
    onGraded: (state) => tell("graded", state),
    onEnd: async (state) => {
      tell("end", state);
      await wait(clock, { delay: endDelay });
    },
  };
}

/** Lets the time pass as long as something waits for it. */
async function inImaginedTime<T>(clock: FakeClock, work: Promise<T>): Promise<T> {
  let isOver = false;
  const ended = () => {
    isOver = true;
  };
  work.then(ended, ended);
  while (!isOver) if (!(await clock.advanceToNext()) && !isOver) throw new Error("Everybody waits for ever");
  return await work;
}

const milliseconds = (seconds: unknown): number | undefined =>
  seconds === undefined ? undefined : Math.round((seconds as number) * 1000);

function limitsOf(limits: RolloutCase["limits"] = {}): RolloutLimits {
  return {
    maxTurns: limits["max_turns"],
    maxTrajectoryTokens: limits["max_trajectory_tokens"],
    maxSampledTokens: limits["max_sampled_tokens"],
    maxTurnTokens: limits["max_turn_tokens"],
    timeoutMs: milliseconds(limits["rollout_timeout_seconds"]),
    sampleTimeoutMs: milliseconds(limits["sampling_turn_timeout_seconds"]),
  };
}

/** As Python prints it. */
const pythonNumber = (value: number): string => (Number.isInteger(value) ? value.toFixed(1) : String(value));

function plainTrajectory({ turns, finalObservation, end }: Trajectory) {
  return {
    end: end ?? null,
    finalLength: finalObservation.length,
    turns: turns.map(({ observation: read, action, reward, isDone, metrics, logs }) => ({
      length: read.length,
      sampled: action.tokens.length,
      reward: pythonNumber(reward),
      isDone,
      metrics,
      logs,
    })),
  };
}

/** What Python calls it. */
const errorName = (error: unknown): string => (error as Error).name;

export async function playRollout({ script, actions, limits, hooks }: RolloutCase): Promise<PlayedRollout> {
  const clock = new FakeClock();
  const [calls, told]: [(number | null)[][], (string | number)[][]] = [[], []];
  const environment = environmentOf(script, clock);
  const running = runRollout(policyOf(actions, clock, calls), environment, {
    limits: limitsOf(limits),
    ...(hooks && { hooks: hooksOf(hooks, clock, told) }),
    clock,
  });
  const outcome = await inImaginedTime(clock, running).then(
    (trajectory) => ({ ok: plainTrajectory(trajectory) }),
    (error: unknown) => ({ error: errorName(error) }),
  );
  if (environment.numClosed !== 1)
    throw new Error(`The environment was closed ${environment.numClosed} times`);
  return { ...outcome, calls, told: hooks === undefined ? null : told };
}

function strategyOf({ kind, maxRetries, minSuccessful, timeout }: GroupCase["strategy"]): RolloutStrategy {
  const timeoutMs = milliseconds(timeout);
  if (kind === "failFast") return failFast();
  if (kind === "retryOnFailure") return retryOnFailure({ maxRetries, timeoutMs });
  return minViableGroup({ minSuccessful, maxRetries, timeoutMs });
}

function terminationOf(given: GroupCase["termination"]): TerminationPolicy | undefined {
  if (given === undefined) return undefined;
  return {
    zeroRewardOnLimit: given["zero_reward_on_limit"] as boolean,
    skipGradingOnTimeout: given["skip_grading_on_timeout"] as boolean,
    limits: given["limit_stop_reasons"] as string[] | undefined,
    graderTimeoutMs: milliseconds(given["grader_timeout_seconds"]),
  };
}

export async function playGroup({ script, strategy, termination }: GroupCase): Promise<PlayedGroup> {
  const clock = new FakeClock();
  const counts = { makings: 0, cleanups: 0, gradings: 0 };
  const made: Closable[] = [];
  const group: EnvironmentGroup = {
    makeEnvironments: async () => {
      counts.makings += 1;
      const { members, again, making = {} } = script;
      if (counts.makings === 1) await wait(clock, making);
      const scripts =
        counts.makings === 1
          ? members
          : members.map(() => again[Math.min(counts.makings - 2, again.length - 1)]!);
      const environments = scripts.map((each) => environmentOf(each, clock));
      made.push(...environments);
      return environments;
    },
    groupRewards: async (trajectories, { environments }) => {
      counts.gradings += 1;
      const { factor, bonus } = script.grading;
      await wait(clock, script.grading);
      if (environments.some((environment) => (environment as Closable).numClosed > 0))
        throw new Error("An environment was closed before it was graded");
      return trajectories.map(({ turns }) => ({
        reward: factor * turns.reduce((sum, { reward }) => sum + reward, 0) + bonus * trajectories.length,
        metrics: { seen: environments.length },
      }));
    },
    close: () => {
      counts.cleanups += 1;
    },
  };
  const running = runRolloutGroup(group, policyOf([], clock, []), {
    strategy: strategyOf(strategy),
    termination: terminationOf(termination),
    clock,
  });
  const outcome = await inImaginedTime(clock, running).then(
    (result) => {
      if (result.trajectories.length === 0) return { skipped: true as const };
      const failures = new FailureCounts();
      failures.add(result);
      return {
        ok: result.trajectories.map((trajectory, place) => ({
          ...plainTrajectory(trajectory),
          groupReward: result.groupRewards[place]!,
          metrics: result.metrics[place]!,
        })),
        failures: failures.metrics(),
      };
    },
    (error: unknown) => ({ error: errorName(error) }),
  );
  // What was still being made when the group ended is closed when it comes.
  await clock.advance(0);
  const wrong = made.find(({ numClosed }) => numClosed !== 1);
  if (wrong !== undefined) throw new Error(`An environment was closed ${wrong.numClosed} times`);
  return { ...outcome, ...counts };
}
