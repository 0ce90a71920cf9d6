/** From a person's data or rewards to a trained model: data, environments, training, evaluation, text in and text out. */
export * from "./chat/index.js";
export * from "./data/index.js";
export * from "./distillation/index.js";
export * from "./environments/index.js";
export * from "./evaluation/index.js";
export * from "./preferences/index.js";
export * from "./reinforcement/index.js";
export * from "./rollouts/index.js";
export * from "./runs/index.js";
export * from "./supervised/index.js";
