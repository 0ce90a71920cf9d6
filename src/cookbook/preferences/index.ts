/** Training by comparison: which of two answers is better, from data, from a model, or from a tournament. */
export {
  type DpoLossOptions,
  dpoLoss,
  ipoLoss,
  type PairLoss,
  type SimpoLossOptions,
  simpoLoss,
} from "./pair-losses.js";
export { withReference } from "./reference.js";
