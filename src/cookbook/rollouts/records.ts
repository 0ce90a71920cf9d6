import type { Message } from "../../renderers/index.js";
import type { ModelInput } from "../../wire/index.js";
import { type Trajectory, type TrajectoryGroup, type Turn, totalRewards } from "../environments/index.js";

/** Part of an episode as it was trained. */
export interface TrainedStretch {
  readonly targetTokens: Int32Array;
  readonly advantages: Float32Array;
  readonly mask: Float32Array;
  /** Position of its episode in the group. */
  readonly trajectory: number;
}

/** A group as it is written to the log. */
export interface RecordedGroup {
  readonly group: TrajectoryGroup;
  /** Training steps of the weights that sampled it. */
  readonly samplerStep?: number | undefined;
  /** Trained parts in order; absent if the group was not trained. */
  readonly data?: readonly TrainedStretch[] | undefined;
}

/** Groups that belong to one step of a run. */
export interface RecordedBatch {
  /** `train`, or `eval/` with the name of an evaluation. */
  readonly split: "train" | `eval/${string}`;
  readonly iteration: number;
  readonly groups: readonly RecordedGroup[];
}

type Fields = Readonly<Record<string, unknown>>;

/**
 * Makes one record per episode, in the Python cookbook's fields. Additional fields: `stop_reason`, `messages`, and for
 * each step `tokens`, `logprobs`, `ob_tokens` (the tokens that the step before does not contain) and, if it was
 * trained, `advantages` and `mask`.
 */
export function* rolloutRecords({ split, iteration, groups }: RecordedBatch): Generator<Fields> {
  for (const [groupIndex, { group, samplerStep, data = [] }] of groups.entries()) {
    const rewards = totalRewards(group);
    for (const [place, trajectory] of group.trajectories.entries()) {
      const { turns, finalObservation, end, messages } = trajectory;
      const trained = trainedTurns(
        turns,
        data.filter((each) => each.trajectory === place),
      );
      yield {
        schema_version: 1,
        split,
        iteration,
        group_idx: groupIndex,
        traj_idx: place,
        tags: group.tags,
        sampling_client_step: samplerStep ?? null,
        total_reward: rewards[place],
        final_reward: group.groupRewards[place],
        trajectory_metrics: group.metrics[place],
        steps: turns.map((turn, index) => ({
          ...stepRecord(turns, index, turn, trained[index]),
          ...movedWeights(turn, samplerStep),
        })),
        final_ob_len: finalObservation.length,
        stop_reason: end ?? null,
        ...(messages !== undefined && { messages: messages.map(messageRecord) }),
      };
    }
  }
}

/** A message in the fields of the Python cookbook, and of OpenAI. */
export function messageRecord(message: Message): Fields {
  const { role, content, toolCalls, unparsedToolCalls, trainable, toolCallId, name } = message;
  return {
    role,
    content:
      typeof content === "string"
        ? content
        : content.map((part) =>
            // The bytes of an image would be most of the file.
            part.type === "image" && typeof part.image !== "string" ? { type: part.type } : part,
          ),
    ...(toolCalls && {
      tool_calls: toolCalls.map(({ id, name: called, arguments: given }) => ({
        type: "function",
        id: id ?? null,
        function: { name: called, arguments: given },
      })),
    }),
    ...(unparsedToolCalls && {
      unparsed_tool_calls: unparsedToolCalls.map(({ rawText, error }) => ({ raw_text: rawText, error })),
    }),
    ...(trainable !== undefined && { trainable }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
    ...(name !== undefined && { name }),
  };
}

function stepRecord(
  turns: readonly Turn[],
  index: number,
  { observation, action, reward, isDone, metrics, logs }: Turn,
  trained: TrainedTurn | undefined,
): Fields {
  const read = newTokens(observation, turns[index - 1]);
  return {
    step_idx: index,
    ob_len: observation.length,
    ac_len: action.tokens.length,
    reward,
    episode_done: isDone,
    metrics,
    logs,
    ...(read && { ob_tokens: Array.from(read) }),
    tokens: Array.from(action.tokens),
    logprobs: shortNumbers(action.logprobs),
    ...(trained && { advantages: shortNumbers(trained.advantages), mask: Array.from(trained.mask) }),
  };
}

/** The weights of a turn, if they differ from those that the episode began with. */
function movedWeights({ action: { samplerStep } }: Turn, begun: number | undefined): Fields {
  return samplerStep === undefined || samplerStep === begun ? {} : { sampling_client_step: samplerStep };
}

/**
 * Tokens that the turn before does not contain, if the prompt begins with it; undefined if the prompt has more than
 * text.
 */
function newTokens(observation: ModelInput, before: Turn | undefined): readonly number[] | undefined {
  if (!observation.isText) return undefined;
  const tokens = observation.toInts();
  if (before?.observation.isText !== true) return tokens;
  const known = [...before.observation.toInts(), ...before.action.tokens];
  const isContinued = known.length <= tokens.length && known.every((token, at) => token === tokens[at]);
  return isContinued ? tokens.slice(known.length) : tokens;
}

/** A 32-bit number has 9 significant digits; JavaScript would write 17. */
function shortNumbers(values: Float32Array): number[] {
  return Array.from(values, (value) => Number(value.toPrecision(9)));
}

interface TrainedTurn {
  readonly advantages: Float32Array;
  readonly mask: Float32Array;
}

/**
 * Finds the turns in the trained parts. An answer comes after its prompt, so the prompt's length is its position; turns
 * of a part that was left out, because all of it is masked, have no trained tokens.
 */
function trainedTurns(
  turns: Trajectory["turns"],
  data: readonly TrainedStretch[],
): (TrainedTurn | undefined)[] {
  const rest = [...data];
  let end = 0;
  return turns.map(({ observation, action: { tokens }, isMasked }) => {
    if (end === rest[0]?.targetTokens.length) {
      rest.shift();
      end = 0;
    }
    const [stretch] = rest;
    if (stretch === undefined || tokens.length === 0) return undefined;
    // The very first token is only read, never a target.
    const skipped = observation.length === 0 ? 1 : 0;
    const start = observation.length - 1 + skipped;
    const isThere =
      start >= end &&
      tokens.every((token, at) => {
        const place = start + at - skipped;
        if (at < skipped) return true;
        return stretch.targetTokens[place] === token && stretch.mask[place] === (isMasked ? 0 : 1);
      });
    if (!isThere) return undefined;
    end = start + tokens.length - skipped;
    const padded = (values: Float32Array) => {
      const all = new Float32Array(tokens.length);
      all.set(values.subarray(start, end), skipped);
      return all;
    };
    return { advantages: padded(stretch.advantages), mask: padded(stretch.mask) };
  });
}
