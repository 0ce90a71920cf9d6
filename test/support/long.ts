import { it } from "vitest";

const isLong = process.env["TINKERTS_TESTS"] === "long";

/** How many cases a test goes through: all in `npm run test:long`, which CI runs, some of them in `npm test`. */
export const cases = (all: number, some: number): number => (isLong ? all : some);

/** A test of `npm run test:long` alone: it trains for long, or does again what another command of CI does. */
export const longTest = (isLong ? it : () => {}) as typeof it;

/** Every so many of a list, from a place on, in `npm test`; all of it in `npm run test:long`. */
export const someOf = <T>(list: readonly T[], every: number, from = 0): readonly T[] =>
  isLong ? list : list.filter((_, place) => place % every === from % every);
