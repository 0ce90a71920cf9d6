/** Training by comparison: which of two answers is better, from data, from a model, or from a tournament. */
export {
  type Comparison,
  type LabeledComparison,
  type PreferenceLabel,
  swapComparison,
} from "./comparison.js";
export {
  comparisonMessages,
  labelDatum,
  type RenderedComparison,
  renderComparison,
} from "./comparison-format.js";
export { type ComparisonLike, type ComparisonSource, comparisons } from "./comparisons.js";
export {
  type DpoLossOptions,
  dpoLoss,
  ipoLoss,
  type PairLoss,
  type SimpoLossOptions,
  simpoLoss,
} from "./pair-losses.js";
export { pairData } from "./pairs.js";
export {
  bothWays,
  type Compare,
  type CompareOptions,
  type PreferenceModelOptions,
  preferenceModel,
} from "./preference-model.js";
export { withReference } from "./reference.js";
export {
  matchups,
  type TournamentOptions,
  type TournamentPattern,
  type TournamentRules,
  tournament,
  tournamentRewards,
} from "./tournament.js";
export { planDpo, type TrainDpoOptions, trainDpo } from "./train-dpo.js";
export {
  planPreferenceModel,
  type TrainPreferenceModelOptions,
  trainPreferenceModel,
} from "./train-preference-model.js";
export {
  type RlhfReinforcementOptions,
  type RlhfRun,
  type TrainRlhfOptions,
  trainRlhf,
} from "./train-rlhf.js";
export { type WinRateOptions, winRateEvaluator } from "./win-rate.js";
