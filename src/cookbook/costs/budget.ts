import * as f from "../../wire/fields/index.js";
import { dollarText, type LeastAndMost, type RunEstimate, shortCount } from "./estimate.js";
import { totalTokens } from "./token-counts.js";

/** The most that a run may use. It stops with a checkpoint before the step that would pass it. */
export interface RunBudget {
  /** Dollars, by the known prices. */
  readonly usd?: number | undefined;
  /** Tokens of all kinds. */
  readonly tokens?: number | undefined;
}

/** Tokens and dollars that a run has used. */
export interface Spent {
  /** Undefined where a price is unknown. */
  readonly usd: number | undefined;
  readonly tokens: number;
}

/** The option table of a budget. */
export const BUDGET_OPTIONS = {
  usd: f.option(f.optional(f.positive), "stop with a checkpoint before the run costs more dollars", {
    flag: "budget",
  }),
  tokens: f.option(f.optional(f.positiveInteger), "stop with a checkpoint before the run uses more tokens", {
    flag: "budget-tokens",
  }),
} satisfies f.OptionsOf<RunBudget>;

/** Lines of a description: the budget, and whether it is enough. */
export function describeBudget(
  { usd, tokens }: RunBudget = {},
  estimate: RunEstimate,
): readonly (readonly [name: string, text: string])[] {
  const { least, most } = estimate.tokens;
  const whole = { least: totalTokens(least), most: totalTokens(most) };
  return [
    ...(usd === undefined
      ? []
      : [["budget", `${dollarText(usd)}${sufficiency(usd, estimate.usd)}`] as const]),
    ...(tokens === undefined
      ? []
      : [["budget", `${shortCount(tokens)} tokens${sufficiency(tokens, whole)}`] as const]),
  ];
}

function sufficiency(limit: number, needed: LeastAndMost<number> | undefined): string {
  if (needed === undefined) return "";
  if (needed.most <= limit) return ", which is enough";
  return `: the run ${needed.least > limit ? "will" : "may"} stop early, with a checkpoint`;
}

/** Decides before each step whether the budget allows it. */
export class BudgetWatch {
  readonly #budget: RunBudget;
  readonly #spent: () => Spent;
  #before: Spent;
  /** The most that a step has used; undefined before the first one. */
  largestStep: Spent | undefined;

  constructor(budget: RunBudget, spent: () => Spent, largestStep: Spent | undefined) {
    this.#budget = budget;
    this.#spent = spent;
    this.#before = spent();
    this.largestStep = largestStep;
  }

  /** Notes what the step used that has just been sent. */
  endStep(): void {
    const now = this.#spent();
    const used = { tokens: now.tokens - this.#before.tokens, usd: difference(now.usd, this.#before.usd) };
    this.largestStep = {
      tokens: Math.max(used.tokens, this.largestStep?.tokens ?? 0),
      usd: used.usd === undefined ? undefined : Math.max(used.usd, this.largestStep?.usd ?? 0),
    };
    this.#before = now;
  }

  /** Says why another step would pass the budget; undefined if it would not. `expected`: what a first step is thought to use. */
  whyOver(expected: Spent): string | undefined {
    const spent = this.#spent();
    const step = this.largestStep ?? expected;
    const isOver = (limit: number | undefined, used: number | undefined, next: number | undefined) =>
      limit !== undefined && used !== undefined && used + (next ?? 0) > limit;
    if (isOver(this.#budget.usd, spent.usd, step.usd))
      return overText(dollarText, this.#budget.usd!, spent.usd!, step.usd);
    if (isOver(this.#budget.tokens, spent.tokens, step.tokens))
      return overText(
        (count) => `${shortCount(count)} tokens`,
        this.#budget.tokens!,
        spent.tokens,
        step.tokens,
      );
    return undefined;
  }
}

function overText(text: (value: number) => string, limit: number, used: number, step = 0): string {
  return (
    `The run stops at its budget of ${text(limit)}: ${text(used)} are used, and a step takes about ${text(step)}. ` +
    "The same call with a larger budget continues"
  );
}

function difference(now: number | undefined, before: number | undefined): number | undefined {
  return now === undefined || before === undefined ? undefined : now - before;
}
