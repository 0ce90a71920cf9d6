import type { SampledTurn, SessionRecord } from "./session-record.js";

/** A session's record as JSON: tokens as lists. */
export function recordJson({ threads, ...record }: SessionRecord): object {
  return {
    ...record,
    threads: threads.map(({ turns, ...thread }) => ({ ...thread, turns: turns.map(turnJson) })),
  };
}

function turnJson({ prompt, tokens, logprobs, ...turn }: SampledTurn): object {
  return {
    ...turn,
    prompt: prompt.isText ? prompt.toInts() : null,
    tokens: Array.from(tokens),
    logprobs: shortNumbers(logprobs),
  };
}

/** Nine digits are all that a 32-bit number has; JavaScript would write 17. */
export function shortNumbers(values: Float32Array): number[] {
  return Array.from(values, (value) => Number(value.toPrecision(9)));
}
