import { philox } from "../../local/engine/philox.js";

/** Makes these random numbers independent of others with the same seed. */
const STREAM = 0x526f6c6c;

/**
 * A seed that only the given seed and numbers decide, the same on every machine. `derivedSeed(runSeed, group)` is the
 * seed of a group, from which its episodes and turns derive theirs.
 */
export function derivedSeed(seed: number, ...place: readonly [number, number?, number?]): number {
  const [a, b = 0, c = 0] = place;
  const [word] = philox(seed, [a, b, c, STREAM + place.length]);
  // Some servers only accept positive 32-bit integers.
  return word >>> 1;
}
