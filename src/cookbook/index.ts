/** From a person's data to a trained model: data, supervised training, evaluation, run folders. */
export * from "./data/index.js";
