import { philox } from "../../local/engine/philox.js";

/** Keeps these draws apart from all others with the same seed. */
const STREAM = 0x526f6c6c;

/**
 * A seed that the given one and these numbers alone decide, the same on every machine. `derivedSeed(runSeed, group)` is that
 * of a group, whose episodes and turns take theirs from it.
 */
export function derivedSeed(seed: number, ...place: readonly [number, number?, number?]): number {
  const [a, b = 0, c = 0] = place;
  const [word] = philox(seed, [a, b, c, STREAM + place.length]);
  // Some servers take no more than a positive 32-bit integer.
  return word >>> 1;
}
