/** What one episode may use. Reaching a limit ends it with that as its reason; nothing is limited by default. */
export interface RolloutLimits {
  /** Answers of the model. Ends as `max_turns`. */
  readonly maxTurns?: number | undefined;
  /** Tokens that are read and sampled, in one context. Ends as `max_tokens`. */
  readonly maxTrajectoryTokens?: number | undefined;
  /** Tokens sampled in all turns. Ends as `max_sampled_tokens`. */
  readonly maxSampledTokens?: number | undefined;
  /** Calls of tools; of a turn that wants more, the first ones are run. Ends as `max_tool_calls`. */
  readonly maxToolCalls?: number | undefined;
  /** Tokens of one answer. An answer that is cut here does not end the episode by itself. */
  readonly maxTurnTokens?: number | undefined;
  /** Ends as `rollout_timeout`; what was done by then is kept. */
  readonly timeoutMs?: number | undefined;
  /** Of one request for samples. This one fails the episode: there is nothing to keep of the turn. */
  readonly sampleTimeoutMs?: number | undefined;
}

/** How tool calls of one answer are run. */
export type ToolExecution = "parallel" | "sequential";

/** What happens to answers that cannot be read. An answer without its stop sign ends the episode in any case. */
export interface ParseErrorPolicy {
  /** Broken tool calls in a row that the model may mend, each answered by a message. Default: 0. */
  readonly maxConsecutive?: number | undefined;
  /** The message that answers them; `{details}` becomes what was wrong. */
  readonly retryMessage?: string | undefined;
  /** Taken off for each of them. Default: 0. */
  readonly penalty?: number | undefined;
  /** The reward of the answer that ends the episode. Default: 0. */
  readonly finalReward?: number | undefined;
  /** Whether such answers are left out of training. Default: no. */
  readonly isMasked?: boolean | undefined;
}

/** How the reason for an episode's end changes its reward. */
export interface TerminationPolicy {
  /** Whether what a limit cut off is rewarded at most 0, once its group is graded. Default: no. */
  readonly zeroRewardOnLimit?: boolean | undefined;
  /** The reasons that count as limits. Default: turns, tokens, sampled tokens, tool calls, time. */
  readonly limits?: readonly string[] | undefined;
  /** Whether a group that ran out of time altogether is not graded, where that could only lower it to 0. Default: no. */
  readonly skipGradingOnTimeout?: boolean | undefined;
  /** Grading that takes longer fails the episode. Default: no limit. */
  readonly graderTimeoutMs?: number | undefined;
  /** Whether a reward function sees the messages of the prompt too. Default: yes, and no where a policy is given. */
  readonly gradesWholeConversation?: boolean | undefined;
}
