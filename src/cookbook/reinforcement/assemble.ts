import { tokensAt } from "../../training/datum-from.js";
import { chunkLength, ModelInput, type ModelInputChunk, wrongField } from "../../wire/index.js";
import type { Trajectory, TrajectoryGroup } from "../environments/index.js";
import type { RolloutDatum } from "./rollout-datum.js";

/** All training data of episodes. `advantages` has one list per group, as `groupAdvantages` makes them. */
export function assembleData(
  groups: readonly TrajectoryGroup[],
  advantages: readonly ArrayLike<number>[],
): RolloutDatum[] {
  checkCount("advantages", advantages.length, groups.length, "groups");
  return groups.flatMap(({ trajectories }, group) => {
    checkCount(`advantages[${group}]`, advantages[group]!.length, trajectories.length, "trajectories");
    return trajectories.flatMap((trajectory, place) =>
      trajectoryData(trajectory, advantages[group]![place]!, { group, trajectory: place }),
    );
  });
}

/**
 * Turns an episode into data. Turns share one datum as long as each observation begins with everything that was read
 * and sampled before; otherwise a new datum begins. Turns without sampled tokens and data in which every turn is masked
 * are left out.
 */
export function trajectoryData(
  { turns }: Trajectory,
  advantage: number,
  place: Pick<RolloutDatum, "group" | "trajectory"> = { group: 0, trajectory: 0 },
): RolloutDatum[] {
  const stretches: Stretch[] = [];
  for (const [index, { observation, action, isMasked }] of turns.entries()) {
    const { tokens, logprobs } = action;
    checkCount(`turns[${index}].action.logprobs`, logprobs.length, tokens.length, "tokens");
    if (tokens.length === 0) continue;
    const seen = positionsOf(observation);
    let stretch = stretches.at(-1);
    if (stretch === undefined || !beginsWith(seen, stretch.positions)) {
      stretch = { positions: [], logprobs: [], mask: [] };
      stretches.push(stretch);
    }
    for (const position of seen.slice(stretch.positions.length)) extend(stretch, position, 0, 0);
    for (const [at, token] of tokens.entries()) extend(stretch, token, logprobs[at]!, isMasked ? 0 : 1);
  }
  return stretches
    .filter(({ mask }) => mask.includes(1, 1))
    .map((stretch) => ({ ...toDatum(stretch, advantage), ...place }));
}

/** Cuts data into parts of nearly the same size, one per optimizer step; fewer if there is too little. */
export function splitEvenly<T>(list: readonly T[], parts: number): T[][] {
  if (!Number.isInteger(parts) || parts < 1)
    throw wrongField("parts", `must be a positive integer, got ${String(parts)}`);
  const count = Math.min(parts, list.length);
  // In this order of operations, because Python rounds the edges in the same way.
  const edge = (part: number) => (part === count ? list.length : Math.trunc(part * (list.length / count)));
  return Array.from({ length: count }, (_, part) => list.slice(edge(part), edge(part + 1)));
}

/** A token, or another input of one piece, such as an image. */
type Position = number | Exclude<ModelInputChunk, { type: "encoded_text" }>;

/** Turns that each read what came before; logprobs and mask have one number for each token that a position takes. */
interface Stretch {
  readonly positions: Position[];
  readonly logprobs: number[];
  readonly mask: number[];
}

function extend({ positions, logprobs, mask }: Stretch, position: Position, logprob: number, taught: number) {
  positions.push(position);
  const length = typeof position === "number" ? 1 : chunkLength(position);
  for (let at = 0; at < length; at++) {
    logprobs.push(logprob);
    mask.push(taught);
  }
}

/** At each token the next one, with its values. The last token is only a target. */
function toDatum({ positions, logprobs, mask }: Stretch, advantage: number) {
  const next = Float32Array.from(mask.slice(1));
  return {
    input: ModelInput.from(chunksOf(positions.slice(0, -1))),
    targetTokens: tokensAt(chunksOf(positions)).slice(1),
    logprobs: Float32Array.from(logprobs.slice(1)),
    advantages: next.map((taught) => (taught === 0 ? 0 : advantage)),
    mask: next,
  };
}

function chunksOf(positions: readonly Position[]): ModelInputChunk[] {
  const chunks: ModelInputChunk[] = [];
  let tokens: number[] = [];
  const endText = () => {
    if (tokens.length > 0) chunks.push({ type: "encoded_text", tokens: Int32Array.from(tokens) });
    tokens = [];
  };
  for (const position of positions) {
    if (typeof position === "number") {
      tokens.push(position);
      continue;
    }
    endText();
    chunks.push(position);
  }
  endText();
  return chunks;
}

function positionsOf({ chunks }: ModelInput): Position[] {
  const positions: Position[] = [];
  for (const chunk of chunks) {
    if (chunk.type !== "encoded_text") positions.push(chunk);
    else for (const token of chunk.tokens) positions.push(token);
  }
  return positions;
}

function beginsWith(seen: readonly Position[], before: readonly Position[]): boolean {
  return before.length <= seen.length && before.every((position, at) => isSame(position, seen[at]!));
}

function isSame(left: Position, right: Position): boolean {
  if (left === right) return true;
  if (typeof left === "number" || typeof right === "number") return false;
  const [ours, theirs] = [Object.entries(left), Object.entries(right)];
  return (
    ours.length === theirs.length &&
    ours.every(([key, value]) => isSameValue(value, right[key as keyof typeof right]))
  );
}

function isSameValue(left: unknown, right: unknown): boolean {
  if (!(left instanceof Uint8Array && right instanceof Uint8Array)) return left === right;
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}

function checkCount(field: string, found: number, expected: number, of: string): void {
  if (found !== expected)
    throw wrongField(field, `must have one entry for each of ${expected} ${of}, got ${found}`);
}
