/** What users put around the primitives of training: datums, custom losses, regularizers, runs that recover. */
export {
  type CustomLossFn,
  type CustomLossOutput,
  type CustomLossResult,
  type EvaluatedLoss,
  evaluateCustomLoss,
  type GradientLoss,
  type TensorLoss,
  withGradients,
} from "./custom-loss.js";
export { datumFromAnswer, datumFromSample } from "./datum-from.js";
export * from "./recovery/index.js";
export * from "./regularizers/index.js";
