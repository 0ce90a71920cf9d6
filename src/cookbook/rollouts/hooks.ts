import type { Message } from "../../renderers/index.js";
import { untilAborted } from "../../transport/index.js";
import type { EpisodeEnd, Turn } from "../environments/index.js";
import { settled } from "../environments/within-time.js";

/** Progress of an episode, for hooks. */
export interface RolloutState {
  readonly turns: readonly Turn[];
  /** Tokens of the prompt that the model reads next. */
  readonly promptTokens: number;
  readonly sampledTokens: number;
  /** Number of answers that were cut off although the episode continued. */
  readonly numTruncations: number;
  readonly elapsedMs: number;
}

type MaybePromise<T> = T | Promise<T>;

/**
 * Functions called during an episode. If a hook throws, the episode fails. A `Player` calls the model itself:
 * `beforeTurn` and `onStop` are not called for it.
 */
export interface RolloutHooks {
  /** Called before each turn. Messages that it returns are added to the conversation. */
  beforeTurn?(state: RolloutState): MaybePromise<readonly Message[] | undefined>;
  /**
   * Called when the episode is about to end; returns another reason, or false to continue. A token limit that is
   * overridden counts again at the next turn. Not called when `timeoutMs` ends a running turn.
   */
  onStop?(reason: EpisodeEnd | (string & {}), state: RolloutState): MaybePromise<string | false | undefined>;
  /** Called when the environment has ended and graded the episode; an episode that a limit ends is not graded by it. */
  onGraded?(state: RolloutState): MaybePromise<void>;
  /** Called at the end of every episode that did not fail. */
  onEnd?(state: RolloutState): MaybePromise<void>;
}

/** Calls the hooks after an episode. */
export async function tellHooks(
  hooks: RolloutHooks | undefined,
  {
    isGraded,
    state,
    signal,
  }: {
    readonly isGraded: boolean;
    readonly state: RolloutState;
    readonly signal: AbortSignal | undefined;
  },
): Promise<void> {
  const call = (work: () => MaybePromise<void> | undefined) => untilAborted(settled(work), signal);
  if (isGraded) await call(() => hooks?.onGraded?.(state));
  await call(() => hooks?.onEnd?.(state));
}
