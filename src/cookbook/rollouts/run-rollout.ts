import { messageOf, TinkerError } from "../../errors.js";
import { inSpan } from "../../session/index.js";
import { type Clock, systemClock, throwIfAborted, timeLimit, untilAborted } from "../../transport/index.js";
import type { Environment, Player, Policy, Trajectory } from "../environments/index.js";
import { settled, withinTime } from "../environments/within-time.js";
import { Episode, type EpisodeOutcome } from "./episode.js";
import { tellHooks } from "./hooks.js";
import { checkReward, checkSettings, type RolloutOptions, RUN_ROLLOUT_OPTIONS } from "./settings.js";
import { endedTurns, withSharedTokens } from "./turns.js";

/** Time after which an environment that has not closed is abandoned. */
const MAX_CLOSE_MS = 30_000;
/** Aborts work that an environment still does after its episode. */
const EPISODE_OVER = new TinkerError("The episode is over.");

/** Runs a policy in an environment or lets a player use it, until the episode ends, and closes the environment. */
export async function runRollout(
  policy: Policy,
  environment: Environment | Player,
  options: RolloutOptions = {},
): Promise<Trajectory> {
  RUN_ROLLOUT_OPTIONS.check(options, "runRollout");
  const trajectory = await playEpisode(policy, environment, options).catch(async (error: unknown) => {
    await closeEnvironment(environment, options.clock);
    throw error;
  });
  const failure = await closeEnvironment(environment, options.clock);
  if (failure !== undefined) throw failure;
  return trajectory;
}

/** Runs an episode, without closing its environment. */
export function playEpisode(
  policy: Policy,
  environment: Environment | Player,
  options: RolloutOptions,
): Promise<Trajectory> {
  const attributes = { "gen_ai.operation.name": "invoke_agent" };
  return inSpan("rollout", { category: "rollout", attributes }, async (span) => {
    const trajectory = await play(policy, environment, options);
    const { turns, end } = trajectory;
    span.set({ "tinkerts.turns": turns.length, "tinkerts.end": end });
    return trajectory;
  });
}

async function play(
  policy: Policy,
  environment: Environment | Player,
  options: RolloutOptions,
): Promise<Trajectory> {
  const { limits = {}, signal, clock = systemClock } = options;
  checkSettings(options);
  throwIfAborted(signal, "The rollout");
  if ("play" in environment) return await letPlay(environment, policy, { ...options, clock });
  const tooLong = () => new TinkerError("The episode took too long.");
  const time = timeLimit(limits.timeoutMs, signal, tooLong, clock);
  const episode = new Episode(policy, environment, { ...options, clock }, time.signal);
  try {
    const outcome = await episode.play().catch((error: unknown): EpisodeOutcome => {
      throwIfAborted(signal, "The rollout");
      if (!time.isOver) throw error;
      return { end: "rollout_timeout", isGraded: false };
    });
    // The end is decided: hooks may take their time.
    time.end();
    return await episode.finish(outcome, signal);
  } finally {
    time.abort(EPISODE_OVER);
  }
}

/** Runs the episode of a player, which keeps the limits itself. */
async function letPlay(
  player: Player,
  policy: Policy,
  { hooks, signal, clock, ...options }: RolloutOptions & { readonly clock: Clock },
): Promise<Trajectory> {
  const { limits = {}, parseErrors, termination, toolExecution = "parallel", seed } = options;
  const startedAtMs = clock.now();
  const over = timeLimit(undefined, signal, () => EPISODE_OVER, clock);
  const rules = { limits, parseErrors, termination, toolExecution };
  try {
    const playing = settled(() => player.play(policy, { ...rules, seed, clock, signal: over.signal }));
    const played = await untilAborted(playing, signal);
    for (const { reward } of played.turns) checkReward("play", reward);
    const turns = withSharedTokens(endedTurns(played.turns, played.end));
    const state = {
      turns,
      promptTokens: played.finalObservation.length,
      sampledTokens: turns.reduce((sum, { action }) => sum + action.tokens.length, 0),
      numTruncations: 0,
      elapsedMs: clock.now() - startedAtMs,
    };
    await tellHooks(hooks, { isGraded: true, state, signal });
    return { ...played, turns };
  } finally {
    over.abort(EPISODE_OVER);
  }
}

class CloseError extends TinkerError {
  override readonly name = "CloseError";
}

/**
 * Closes an environment, a group or a source. Returns an error instead of throwing it, because the episodes are still
 * good.
 */
export async function closeEnvironment(
  closed: { close?(): void | Promise<void> },
  clock?: Clock,
): Promise<CloseError | undefined> {
  try {
    await withinTime("It", MAX_CLOSE_MS, { clock }, () => closed.close?.());
    return undefined;
  } catch (cause) {
    return new CloseError(`An environment could not be closed: ${messageOf(cause)}`, { cause });
  }
}
