/** Groups of tests whose judge is the Python cookbook, and how many random cases they have. */
import { afterAll, beforeAll, describe } from "vitest";
import { compareFormulas } from "./compare-formulas.js";
import { explainSkip, hasPythonModule, Judge } from "./judge.js";
import { writeReport } from "./report.js";

/** Where random cases begin, and how many there are of each kind: `npm run conformance -- --seed --cases`. */
export const SEED = Number(process.env["TINKERTS_SEED"] ?? 1);
export const CASES = Number(process.env["TINKERTS_CASES"] ?? 1000);

/** What tests of a group are given. */
export interface Judged {
  readonly judge: Pick<Judge, "ask">;
  /** Goes into the report. */
  readonly counts: Record<string, number>;
  /** Asks for a formula of each list of arguments, and has what comes checked beside them. */
  compare<C extends unknown[]>(
    formula: string,
    cases: readonly C[],
    check: (theirs: never, ...given: C) => void | Promise<void>,
  ): Promise<void>;
}

/** A group with a judge of its own and a report of its name; skipped, with the reason, where Python lacks the cookbook. */
export function describeJudged(
  { name, title, script }: { readonly name: string; readonly title: string; readonly script: string },
  tests: (judged: Judged) => void,
): void {
  const file = `${name}.test.ts`;
  explainSkip(file);
  describe.skipIf(!hasPythonModule("tinker_cookbook", file))(title, () => {
    let running: Judge;
    const counts: Record<string, number> = {};
    beforeAll(() => {
      running = new Judge(script);
    });
    afterAll(async () => {
      writeReport(name, counts);
      await running?.[Symbol.asyncDispose]();
    });
    const judge: Pick<Judge, "ask"> = { ask: (...question) => running.ask(...question) };
    tests({
      judge,
      counts,
      compare: (formula, cases, check) => compareFormulas(judge, counts, { formula, cases, check }),
    });
  });
}
