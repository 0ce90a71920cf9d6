import { expect } from "vitest";
import type { Judge } from "./judge.js";
import type { Outcome } from "./renderer-operations.js";

/** Asks Python for a formula of each list of arguments, and gives what it made to `check` beside them; counts them. */
export async function compareFormulas<C extends unknown[]>(
  judge: Pick<Judge, "ask">,
  counts: Record<string, number>,
  {
    formula,
    cases,
    check,
  }: {
    readonly formula: string;
    readonly cases: readonly C[];
    readonly check: (theirs: never, ...given: C) => void | Promise<void>;
  },
): Promise<void> {
  counts[formula] = (counts[formula] ?? 0) + cases.length;
  const theirs = await judge.ask<Outcome[]>("formula", { formula, cases });
  for (const [index, given] of cases.entries()) {
    const { ok, error } = theirs[index]!;
    expect(error, JSON.stringify(given)).toBeUndefined();
    await check(ok as never, ...given);
  }
}
