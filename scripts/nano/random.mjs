// Seeded randomness whose every stream is addressed by numbers, so that any row of the text can be made alone.

/** Mixes integers into one 32-bit hash. */
export function hashNumbers(...numbers) {
  let hash = 0x9e3779b9;
  for (const number of numbers) {
    hash = Math.imul(hash ^ (number | 0), 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
    hash ^= hash >>> 16;
  }
  return hash >>> 0;
}

/** Hashes a string, for splits that must not depend on the seed (which words and facts are held out). */
export function hashText(text) {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++)
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return hashNumbers(hash);
}

/** A stream of random numbers (sfc32) addressed by `numbers`. */
export class Random {
  #a;
  #b;
  #c;
  #counter = 1;

  constructor(...numbers) {
    this.#a = hashNumbers(1, ...numbers);
    this.#b = hashNumbers(2, ...numbers);
    this.#c = hashNumbers(3, ...numbers);
    for (let round = 0; round < 8; round++) this.#next();
  }

  #next() {
    const result = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + result) | 0;
    return result >>> 0;
  }

  /** A number in [0, 1). */
  unit() {
    return this.#next() / 4294967296;
  }

  /** True with the given probability. */
  chance(probability) {
    return this.unit() < probability;
  }

  /** An integer from `low` to `high`, both included. */
  integer(low, high) {
    return low + Math.floor(this.unit() * (high - low + 1));
  }

  pick(list) {
    return list[Math.floor(this.unit() * list.length)];
  }

  /** A key of `shares`, drawn in proportion to its value. */
  weighted(shares) {
    const entries = Object.entries(shares);
    let left = this.unit() * entries.reduce((sum, [, share]) => sum + share, 0);
    for (const [key, share] of entries) {
      left -= share;
      if (left < 0) return key;
    }
    return entries[entries.length - 1][0];
  }
}
