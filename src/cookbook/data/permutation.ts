import { uniform } from "../../local/engine/philox.js";

/** Makes these random numbers independent of others with the same seed. */
const STREAM = 0x44617461;

/** The numbers below `length` in an order that only (seed, round) decides, the same on every machine. */
export function permutation(length: number, seed: number, round = 0): Uint32Array {
  const order = Uint32Array.from({ length }, (_, index) => index);
  for (let last = length - 1; last > 0; last -= 1) {
    const other = Math.floor(uniform(seed, [last, round, 0, STREAM]) * (last + 1));
    [order[last], order[other]] = [order[other]!, order[last]!];
  }
  return order;
}
