import { ValidationError } from "../../errors.js";
import { tokensAt } from "../../training/datum-from.js";
import { chunkLength, ModelInput, type ModelInputChunk } from "../../wire/index.js";
import type { Trajectory, TrajectoryGroup } from "../environments/index.js";
import type { RolloutDatum } from "./rollout-datum.js";

/** All that episodes can be trained on. `advantages` has one list per group, as `groupAdvantages` makes them. */
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
 * An episode as data. Turns go into one datum as long as each observation begins with all that was read and sampled
 * before; where one does not, another datum begins. Turns in which nothing was sampled teach nothing, and neither do
 * data whose turns are all masked.
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

/** Cut into parts of nearly the same size, one for each optimizer step; into fewer where there is too little. */
export function splitEvenly<T>(list: readonly T[], parts: number): T[][] {
  if (!Number.isInteger(parts) || parts < 1)
    throw new ValidationError("parts", `parts must be a positive integer, got ${String(parts)}`);
  const count = Math.min(parts, list.length);
  // In this order, since Python's edges are rounded so too.
  const edge = (part: number) => (part === count ? list.length : Math.trunc(part * (list.length / count)));
  return Array.from({ length: count }, (_, part) => list.slice(edge(part), edge(part + 1)));
}

/** A token, or something else that was read, in one piece. */
type Position = number | Exclude<ModelInputChunk, { type: "encoded_text" }>;

/** Turns of which each reads what came before; logprobs and mask have one number for each token that a position takes. */
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

/** At each token the next one, with what is known of it. The last was sampled, and is no input. */
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
    throw new ValidationError(
      field,
      `${field} must have one entry for each of ${expected} ${of}, got ${found}`,
    );
}
