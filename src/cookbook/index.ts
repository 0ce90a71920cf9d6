/** From a person's data to a trained model: renderers, data, supervised training, evaluation, run folders. */
export * from "./renderers/index.js";
