// Randomness that follows from names alone: the same seed and the same name give the same numbers in every run.

/** A generator of numbers in [0, 1) for anything that can be named. */
export function randomFor(...names) {
  let state = 0x811c9dc5;
  for (const character of names.join("\u0000")) {
    state = Math.imul(state ^ character.codePointAt(0), 0x01000193);
  }
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export const between = (random, low, high) => low + (high - low) * random();

export const oneOf = (random, items) => items[Math.floor(random() * items.length)];

/** One of the keys of a Map from key to weight; undefined when nothing has weight. */
export function weighted(random, weights) {
  let total = 0;
  for (const weight of weights.values()) total += weight;
  let left = random() * total;
  for (const [key, weight] of weights) {
    left -= weight;
    if (left < 0) return key;
  }
  return undefined;
}
