import type { Message } from "../../renderers/index.js";
import type { EpisodeEnd, Turn } from "../environments/index.js";

/** How far an episode is. */
export interface RolloutState {
  readonly turns: readonly Turn[];
  /** Of what the model reads next. */
  readonly promptTokens: number;
  readonly sampledTokens: number;
  /** Answers that were cut off, and the episode went on. */
  readonly numTruncations: number;
  readonly elapsedMs: number;
}

type MaybePromise<T> = T | Promise<T>;

/** What may be done with an episode from outside while it runs. What a hook throws fails the episode. */
export interface RolloutHooks {
  /** Before each turn. Messages that it returns are put into the conversation first. */
  beforeTurn?(state: RolloutState): MaybePromise<readonly Message[] | undefined>;
  /**
   * When the episode is about to end for a reason: it may give another one, or false to go on. A limit of tokens that is
   * passed over so counts again at the next turn. Not asked when `timeoutMs` ends a turn that is under way.
   */
  onStop?(reason: EpisodeEnd | (string & {}), state: RolloutState): MaybePromise<string | false | undefined>;
  /** When the environment has ended and graded the episode; what a limit ends is not graded by it. */
  onGraded?(state: RolloutState): MaybePromise<void>;
  /** At the end of every episode that did not fail. */
  onEnd?(state: RolloutState): MaybePromise<void>;
}
