import type { ServiceClient } from "../../clients/index.js";
import { wrongField } from "../../wire/index.js";
import {
  BudgetWatch,
  type PriceList,
  type PriceOverrides,
  priceList,
  type RunBudget,
  type RunEstimate,
  type Spent,
  TokenMeter,
  totalTokens,
} from "../costs/index.js";
import type { TokenFile } from "../costs/token-file.node.js";

interface SpendingOptions {
  readonly service: ServiceClient;
  readonly model: string;
  readonly prices: string | PriceOverrides | undefined;
  readonly budget: RunBudget | undefined;
  readonly folder: string | undefined;
}

/** Tokens and dollars of a run while it runs, and whether its budget allows another step. */
export class RunSpending {
  /** Why there are tokens and no dollars, and other remarks for people. */
  readonly remarks: readonly string[];
  readonly #meter: TokenMeter;
  readonly #prices: PriceList;
  readonly #file: TokenFile | undefined;
  readonly #budget: BudgetWatch | undefined;
  readonly #stop: () => void;
  /** Metrics at the end of each step whose line is not written yet. */
  readonly #sent = new Map<number, Readonly<Record<string, number>>>();

  private constructor(options: SpendingOptions, prices: PriceList, file: TokenFile | undefined) {
    const { service, model, budget } = options;
    this.#prices = prices;
    this.#file = file;
    const onChange = file && (() => file.write(this.#used()));
    this.#meter = new TokenMeter(model, { before: file?.before.tokens ?? new Map(), onChange });
    const whyNoUsd = prices.whyUnknown([model]);
    if (whyNoUsd !== undefined && budget?.usd !== undefined)
      throw wrongField("budget.usd", `cannot be watched, because ${whyNoUsd}; budget.tokens needs no prices`);
    const warning = prices.warning();
    this.remarks = warning === undefined ? [] : [`Note: ${warning}`];
    this.#budget = budget && new BudgetWatch(budget, () => this.spent, file?.before.largestStep);
    this.#stop = service.observeTokens(this.#meter.observer);
  }

  static async open(options: SpendingOptions): Promise<RunSpending> {
    const prices = await priceList(options.service, options.prices);
    if (options.folder === undefined) return new RunSpending(options, prices, undefined);
    const { TokenFile } = await import("../costs/token-file.node.js");
    const file = new TokenFile(options.folder);
    try {
      return new RunSpending(options, prices, file);
    } catch (error) {
      file.close();
      throw error;
    }
  }

  get spent(): Spent {
    const { tokens } = this.#meter;
    return { usd: this.#prices.dollars(tokens), tokens: totalTokens(this.#meter.total) };
  }

  /**
   * The run as metrics, up to the end of a step: what the next steps have sent already is not in them. The run so far if
   * the step has sent nothing.
   */
  metricsAt(step: number): Readonly<Record<string, number>> {
    const metrics = this.#sent.get(step) ?? this.metrics();
    this.#sent.delete(step);
    return metrics;
  }

  /** The run so far as metrics: `cost/usd` and `tokens/...`. */
  metrics(): Readonly<Record<string, number>> {
    const { prefill, cachedPrefill, sample, train } = this.#meter.total;
    const { usd } = this.spent;
    return {
      ...(usd === undefined ? {} : { "cost/usd": usd }),
      "tokens/prefill": prefill,
      "tokens/cached_prefill": cachedPrefill,
      "tokens/sample": sample,
      "tokens/train": train,
    };
  }

  /** Notes what a step used whose requests were sent. */
  endStep(step: number): void {
    this.#sent.set(step, this.metrics());
    this.#budget?.endStep();
    this.#file?.write(this.#used());
  }

  /** Says why the budget does not allow another step of so many; undefined if it does. */
  whyOver(estimate: RunEstimate | undefined, steps: number): string | undefined {
    const tokens = estimate === undefined ? 0 : totalTokens(estimate.tokens.least) / steps;
    return this.#budget?.whyOver({ tokens, usd: (estimate?.usd?.least ?? 0) / steps });
  }

  close(): void {
    this.#stop();
    this.#file?.close();
  }

  #used() {
    return { tokens: this.#meter.tokens, largestStep: this.#budget?.largestStep };
  }
}
