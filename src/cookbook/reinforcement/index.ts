/** Training with rewards: from episodes to advantages, losses and steps. */
export * from "./advantages.js";
export * from "./assemble.js";
export * from "./environment-evaluator.js";
export * from "./group-feed.js";
export * from "./group-source.js";
export * from "./kl.js";
export * from "./losses.js";
export * from "./metrics.js";
export * from "./options.js";
export * from "./rollout-datum.js";
export * from "./stored-loss.js";
export * from "./train-reinforcement.js";
