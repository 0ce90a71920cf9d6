/** Costs of a run: prices, tokens before and during a run, budgets. */
export * from "./budget.js";
export * from "./estimate.js";
export * from "./price-table.js";
export * from "./prices.js";
export * from "./token-counts.js";
export * from "./token-meter.js";
