/** From a person's data to a trained model: data, supervised training, evaluation, text in and text out. */
export * from "./chat/index.js";
export * from "./data/index.js";
export * from "./evaluation/index.js";
export * from "./supervised/index.js";
