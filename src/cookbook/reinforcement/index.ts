/** Training by reward: from episodes to advantages, losses and steps. */
export { type AdvantageRule, dropConstantGroups, groupAdvantages } from "./advantages.js";
export { assembleData, splitEvenly, trajectoryData } from "./assemble.js";
export {
  type AdvantagePenalty,
  discountedSums,
  type KlPenaltyOptions,
  klPenalty,
  klSampleTrain,
  type LogprobSource,
  logprobDifferences,
  logprobsUnder,
  postKl,
} from "./kl.js";
export { type PolicyLoss, type PolicyLossConfig, type PolicyLossName, policyLoss } from "./losses.js";
export { meanMetrics, samplerMetrics, trajectoryMetrics } from "./metrics.js";
export { countTaught, type RolloutDatum } from "./rollout-datum.js";
