/** Training on comparisons: from data, by a preference model, or in a tournament. */
export * from "./comparison.js";
export * from "./comparison-format.js";
export * from "./comparisons.js";
export * from "./pair-losses.js";
export * from "./pairs.js";
export * from "./preference-model.js";
export * from "./reference.js";
export * from "./tournament.js";
export * from "./train-dpo.js";
export * from "./train-preference-model.js";
export * from "./train-rlhf.js";
export * from "./win-rate.js";
