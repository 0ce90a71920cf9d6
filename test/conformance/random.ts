/** Seeded values for property tests: small pieces that are put together into whole messages. */
import { isDeepStrictEqual } from "node:util";

/** Makes a value; undefined in a field of a record leaves the field out. */
export type Make<T> = (random: Random) => T;

const TEXTS = [
  "",
  " ",
  "naïve ☃ 𝄞 \u0000\u2028",
  '"\\\n\t/</script>',
  "__proto__",
  "constructor",
  "snake_case",
  "camelCase",
  "lone \ud800 surrogate",
  "界".repeat(40),
];

export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0 to 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** Both ends included. */
  integer(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.integer(0, choices.length - 1)]!;
  }

  times<T>(count: number, make: Make<T>): T[] {
    return Array.from({ length: count }, () => make(this));
  }
}

export const always =
  <T>(value: T): Make<T> =>
  () =>
    value;

export const oneOf =
  <T>(...choices: readonly T[]): Make<T> =>
  (random) =>
    random.pick(choices);

export const either =
  <T>(...makes: readonly Make<T>[]): Make<T> =>
  (random) =>
    random.pick(makes)(random);

export const boolean: Make<boolean> = (random) => random.chance(0.5);

export const text: Make<string> = (random) => {
  if (random.chance(0.4)) return random.pick(TEXTS);
  return random.times(random.integer(0, random.pick([1, 4, 30])), wellFormedCharacter).join("");
};

function wellFormedCharacter(random: Random): string {
  const code = random.pick([
    random.integer(32, 126),
    random.integer(160, 0xd7ff),
    random.integer(0x10000, 0x1ffff),
  ]);
  return String.fromCodePoint(code);
}

/** Without lone surrogates: protobuf takes none, and pydantic keeps them in plain texts alone. */
export const wellFormedText: Make<string> = (random) => text(random).replace(/\p{Surrogate}/gu, "?");

export const nonEmptyText: Make<string> = (random) => `${wellFormedText(random)}x`;

export const integer: Make<number> = (random) =>
  random.pick([
    random.integer(0, 100),
    random.pick([
      0,
      1,
      -1,
      2 ** 31 - 1,
      2 ** 31,
      -(2 ** 31),
      Number.MAX_SAFE_INTEGER,
      Number.MIN_SAFE_INTEGER,
    ]),
    random.integer(0, Number.MAX_SAFE_INTEGER),
  ]);

export const count: Make<number> = (random) => Math.abs(integer(random));

/** Never negative zero, which JSON does not keep. */
export const finite: Make<number> = (random) => {
  if (random.chance(0.4)) return random.pick([0, 1, 0.1, 1e-12, 5e-324, 1e307, -1e307, 1 / 3, 1e21, 1e-7]);
  return (random.next() - 0.5) * 10 ** random.integer(-20, 20);
};

/** As Python writes a time: microseconds or none, in UTC. */
export const moment: Make<string> = (random) => {
  const seconds = new Date(random.integer(0, 4_000_000_000) * 1000).toISOString().slice(0, 19);
  const micros = random.pick([0, 0, 1, 123_456, 500_000, 999_999]);
  return `${seconds}${micros === 0 ? "" : `.${String(micros).padStart(6, "0")}`}Z`;
};

export const bytes: Make<Uint8Array> = (random) =>
  Uint8Array.from(
    random.times(random.pick([0, 1, 3, random.integer(0, 300)]), (each) => each.integer(0, 255)),
  );

export const tokens: Make<number[]> = (random) =>
  random.times(random.pick([0, 1, random.integer(0, 40)]), (each) =>
    each.pick([0, 1, 2 ** 31 - 1, each.integer(0, 200_000)]),
  );

export const anything: Make<unknown> = (random) => json(random, 0);

function json(random: Random, depth: number): unknown {
  const kinds: Make<unknown>[] = [text, integer, finite, boolean, always(null)];
  if (depth < 3) {
    kinds.push((each) => each.times(each.integer(0, 3), (item) => json(item, depth + 1)));
    kinds.push((each) => entries(each, (item) => json(item, depth + 1)));
  }
  return random.pick(kinds)(random);
}

function entries<T>(random: Random, make: Make<T>): Record<string, T> {
  // A plain object gives `__proto__` a meaning of its own; JSON.parse does not.
  const pairs = random.times(
    random.pick([0, 1, 2, random.integer(0, 8)]),
    (each) => [wellFormedText(each), make(each)] as const,
  );
  return Object.fromEntries(pairs);
}

export const mapOf =
  <T>(make: Make<T>): Make<Record<string, T>> =>
  (random) =>
    entries(random, make);

export const listOf =
  <T>(make: Make<T>, least = 0, most = 12): Make<T[]> =>
  (random) =>
    random.times(Math.max(least, random.pick([0, 1, 2, random.integer(0, most)])), make);

export const optional =
  <T>(make: Make<T>): Make<T | undefined> =>
  (random) =>
    random.chance(0.5) ? make(random) : undefined;

/** Absent, null or a value, as in answers. */
export const nullable =
  <T>(make: Make<T>): Make<T | null | undefined> =>
  (random) =>
    random.pick([undefined, null, make(random), make(random)]);

export type Fields<T> = { readonly [K in keyof T]-?: Make<T[K]> };

/** A maker that also tells its fields. */
export interface RecordMake<T> extends Make<T> {
  readonly fields: readonly string[];
}

export function record<T>(fields: Fields<T>): RecordMake<T> {
  const make = (random: Random): T => {
    const made: Record<string, unknown> = {};
    for (const [key, makeField] of Object.entries<Make<unknown>>(fields)) {
      const value = makeField(random);
      if (value !== undefined) made[key] = value;
    }
    return made as T;
  };
  return Object.assign(make, { fields: Object.keys(fields) });
}

/** Equal as JSON: what is undefined is absent. */
export function sameJson(left: unknown, right: unknown): boolean {
  return isDeepStrictEqual(asJson(left), asJson(right));
}

function asJson(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

/** A smaller JSON value that still fails, found greedily. */
export async function shrink(value: unknown, fails: (value: unknown) => Promise<boolean>): Promise<unknown> {
  let smallest = value;
  for (let rounds = 0; rounds < 200; rounds++) {
    let found = false;
    for (const candidate of smaller(smallest)) {
      if (!(await fails(candidate))) continue;
      smallest = candidate;
      found = true;
      break;
    }
    if (!found) break;
  }
  return smallest;
}

function* smaller(value: unknown): Generator<unknown> {
  if (typeof value === "string" && value.length > 0) {
    yield "";
    yield value.slice(0, value.length >> 1);
    yield value.slice(1);
  } else if (typeof value === "number" && value !== 0) {
    yield 0;
    if (value !== 1) yield 1;
  } else if (Array.isArray(value)) {
    if (value.length > 1) yield value.slice(0, value.length >> 1);
    for (const index of value.keys()) yield value.toSpliced(index, 1);
    for (const [index, item] of value.entries())
      for (const each of smaller(item)) yield value.with(index, each);
  } else if (typeof value === "object" && value !== null) {
    for (const key of Object.keys(value)) {
      yield Object.fromEntries(Object.entries(value).filter(([name]) => name !== key));
    }
    for (const [key, item] of Object.entries(value))
      for (const each of smaller(item)) yield { ...value, [key]: each };
  }
}
