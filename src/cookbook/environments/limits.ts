/** Limits of one episode. Reaching one ends the episode with it as the reason; there are no limits by default. */
export interface RolloutLimits {
  /** Most answers of the model. Reaching it ends the episode as `max_turns`. */
  readonly maxTurns?: number | undefined;
  /** Most tokens read and sampled in one context. Reaching it ends the episode as `max_tokens`. */
  readonly maxTrajectoryTokens?: number | undefined;
  /** Most tokens sampled in all turns. Reaching it ends the episode as `max_sampled_tokens`. */
  readonly maxSampledTokens?: number | undefined;
  /** Maximum number of tool calls; a turn with more runs only the first ones. Ends as `max_tool_calls`. */
  readonly maxToolCalls?: number | undefined;
  /** Most tokens of one answer. An answer that is cut off here does not end the episode by itself. */
  readonly maxTurnTokens?: number | undefined;
  /**
   * Time limit of the episode in milliseconds. Reaching it ends the episode as `rollout_timeout`; finished turns are
   * kept.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Time limit of one sampling request in milliseconds. Exceeding it fails the episode, since the turn has no answer.
   */
  readonly sampleTimeoutMs?: number | undefined;
}

/** How the tool calls of one answer run. */
export type ToolExecution = "parallel" | "sequential";

/** Handling of answers that cannot be parsed. An answer without its stop sequence always ends the episode. */
export interface ParseErrorPolicy {
  /** Number of consecutive broken tool calls that the model may correct, each answered by a message. Default: 0. */
  readonly maxConsecutive?: number | undefined;
  /** Message that answers a broken call; `{details}` is replaced by the error. */
  readonly retryMessage?: string | undefined;
  /** Subtracted from the reward for each broken call. Default: 0. */
  readonly penalty?: number | undefined;
  /** Reward of the answer that ends the episode. Default: 0. */
  readonly finalReward?: number | undefined;
  /** Whether such answers are left out of training. Default: no. */
  readonly isMasked?: boolean | undefined;
}

/** How the reason for an episode's end changes its reward. */
export interface TerminationPolicy {
  /** Whether an episode cut off by a limit is rewarded with at most 0, once its group is graded. Default: no. */
  readonly zeroRewardOnLimit?: boolean | undefined;
  /** Reasons that count as limits. Default: turns, tokens, sampled tokens, tool calls, time. */
  readonly limits?: readonly string[] | undefined;
  /**
   * Whether a group in which every episode ran out of time is not graded, if a grade could only be lowered to 0.
   * Default: no.
   */
  readonly skipGradingOnTimeout?: boolean | undefined;
  /**
   * Time limit in milliseconds of a reward or of a group's grading; exceeding it is an error. Default: 15 minutes for a
   * reward, no limit for a group.
   */
  readonly graderTimeoutMs?: number | undefined;
  /** Whether a reward function also sees the messages of the prompt. Default: yes; no if a policy is given. */
  readonly gradesWholeConversation?: boolean | undefined;
}
