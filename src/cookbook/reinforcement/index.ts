/** Training by reward: from episodes to advantages, losses and steps. */
export { type AdvantageRule, dropConstantGroups, groupAdvantages } from "./advantages.js";
export { assembleData, splitEvenly, trajectoryData } from "./assemble.js";
export { type EnvironmentEvaluatorOptions, environmentEvaluator } from "./environment-evaluator.js";
export type { RolledGroup } from "./group-feed.js";
export type {
  ActingOptions,
  EnvironmentOptions,
  EnvironmentsContext,
  ProblemOptions,
  SourceOptions,
} from "./group-source.js";
export {
  type AdvantagePenalty,
  discountedSums,
  type KlPenaltyOptions,
  klPenalty,
  klSampleTrain,
  type LogprobSource,
  logprobDifferences,
  logprobsUnder,
  type PenaltyContext,
  postKl,
} from "./kl.js";
export { type PolicyLoss, type PolicyLossConfig, type PolicyLossName, policyLoss } from "./losses.js";
export { meanMetrics, samplerMetrics, trajectoryMetrics } from "./metrics.js";
export type {
  KlReferenceOptions,
  LossOption,
  ReinforcementMode,
  ReinforcementSettings,
  StepRollouts,
  TrainReinforcementOptions,
} from "./options.js";
export { countTaught, type RolloutDatum } from "./rollout-datum.js";
export { planReinforcement, trainReinforcement } from "./train-reinforcement.js";
