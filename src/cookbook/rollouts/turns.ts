import { ModelInput } from "../../wire/index.js";
import type { Action, Metrics, StepResult, Turn } from "../environments/index.js";

/** Stands in a turn without a sample. */
export const NO_ACTION: Action = {
  tokens: new Int32Array(),
  logprobs: new Float32Array(),
  stopReason: "stop",
};

/** A turn of an answer and the environment's response to it. */
export function turnOf(
  observation: ModelInput,
  action: Action,
  { reward, isDone, isMasked = false, metrics = {}, logs = {} }: StepResult,
): Turn {
  const masked = isMasked ? { parse_error_masked: 1 } : {};
  return { observation, action, reward, isDone, isMasked, metrics: { ...metrics, ...masked }, logs };
}

/** The turns of a finished episode; the last one has the reason and the metrics of the whole. */
export function endedTurns(turns: readonly Turn[], end: string | undefined, metrics: Metrics = {}): Turn[] {
  // An episode that ended before any turn still has its reason and its reward of 0.
  const last = turns.at(-1) ?? turnOf(ModelInput.empty(), NO_ACTION, { reward: 0, isDone: true });
  const reason = end === undefined ? {} : { [`stop/${end}`]: 1 };
  return [
    ...turns.slice(0, -1),
    { ...last, isDone: true, metrics: { ...last.metrics, ...reason, ...metrics } },
  ];
}

/**
 * A prompt that the next one begins with becomes a view of it. Otherwise an episode of many turns would store most of
 * its tokens once per turn.
 */
export function withSharedTokens(turns: readonly Turn[]): readonly Turn[] {
  let whole: Int32Array | undefined;
  return turns
    .toReversed()
    .map((turn): Turn => {
      const { observation } = turn;
      if (whole !== undefined && beginsWith(whole, observation)) {
        return { ...turn, observation: ModelInput.fromInts(whole.subarray(0, observation.length)) };
      }
      const [chunk, ...others] = observation.chunks;
      whole = chunk?.type === "encoded_text" && others.length === 0 ? chunk.tokens : undefined;
      return turn;
    })
    .toReversed();
}

function beginsWith(tokens: Int32Array, { chunks }: ModelInput): boolean {
  let place = 0;
  for (const chunk of chunks) {
    if (chunk.type !== "encoded_text") return false;
    for (const token of chunk.tokens) {
      if (tokens[place] !== token) return false;
      place += 1;
    }
  }
  return true;
}
