import { messageOf, TinkerError } from "../../errors.js";
import { type Clock, systemClock, throwIfAborted, timeLimit } from "../../transport/index.js";
import type { Environment, Trajectory } from "../environments/index.js";
import { withinTime } from "../environments/within-time.js";
import { Episode, type Outcome } from "./episode.js";
import type { Policy } from "./policy.js";
import { checkSettings, type RolloutOptions } from "./settings.js";

/** What has not closed by then is left alone. */
const MAX_CLOSE_MS = 30_000;
/** Whatever an environment still does then is of no use any more. */
const EPISODE_OVER = new TinkerError("The episode is over.");

/** Lets a policy act in an environment until the episode is over, and closes the environment. */
export async function runRollout(
  policy: Policy,
  environment: Environment,
  options: RolloutOptions = {},
): Promise<Trajectory> {
  const trajectory = await playEpisode(policy, environment, options).catch(async (error: unknown) => {
    await closeEnvironment(environment, options.clock);
    throw error;
  });
  const failure = await closeEnvironment(environment, options.clock);
  if (failure !== undefined) throw failure;
  return trajectory;
}

/** An episode, but for the closing of its environment. */
export async function playEpisode(
  policy: Policy,
  environment: Environment,
  options: RolloutOptions,
): Promise<Trajectory> {
  const { limits = {}, signal, clock = systemClock } = options;
  checkSettings(options);
  throwIfAborted(signal, "The rollout");
  const tooLong = () => new TinkerError("The episode took too long.");
  const time = timeLimit(limits.timeoutMs, signal, tooLong, clock);
  const episode = new Episode(policy, environment, { ...options, clock }, time.signal);
  try {
    const outcome = await episode.play().catch((error: unknown): Outcome => {
      throwIfAborted(signal, "The rollout");
      if (!time.isOver) throw error;
      return { end: "rollout_timeout", isGraded: false };
    });
    // How it ended is decided: hooks may take their time.
    time.end();
    return await episode.finish(outcome, signal);
  } finally {
    time.abort(EPISODE_OVER);
  }
}

class CloseError extends TinkerError {
  override readonly name = "CloseError";
}

/** Closes an environment, a group or a source. What goes wrong is given back: the episodes are none the worse for it. */
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
