/** From data or rewards to a trained model: data, environments, training, evaluation, text in and text out. */

// Agents: programs that call the model themselves.
export {
  type AgentCommand,
  type AgentEpisode,
  type AgentOptions,
  rulerReward,
} from "./agents/index.js";
// Chat: text in, text out.
export {
  type ChatAnswer,
  chat,
  chatStream,
  isContextOverflow,
} from "./chat/index.js";
// Data: conversations from files or code, in the order of steps.
export {
  batches,
  type Conversation,
  conversations,
  datumFromExample,
  interleave,
  questions,
  split,
} from "./data/index.js";
// Distillation.
export {
  distillationDatum,
  type OffPolicyDistillationOptions,
  type OnPolicyDistillationOptions,
  type PromptDistillationOptions,
  planOffPolicyDistillation,
  planOnPolicyDistillation,
  planPromptDistillation,
  planSelfDistillation,
  reverseKlLoss,
  type SelfDistillationOptions,
  type Teacher,
  teacherPenalty,
  trainOffPolicyDistillation,
  trainOnPolicyDistillation,
  trainPromptDistillation,
  trainSelfDistillation,
} from "./distillation/index.js";
// Environments that a model acts in, and their tools.
export {
  type Environment,
  type EnvironmentGroup,
  environmentGroups,
  type GroupSource,
  interleaveGroups,
  type McpClient,
  type MessageEnvironment,
  type MessageStep,
  mcpTools,
  messageEnvironment,
  type Problem,
  type ProblemAnswer,
  problemGroups,
  type RolloutLimits,
  type StepResult,
  type Tool,
  type ToolOutput,
  type Trajectory,
  type TrajectoryGroup,
  tool,
  toolEnvironment,
  totalRewards,
} from "./environments/index.js";
// Evaluation.
export {
  choiceMatch,
  type EvaluateOptions,
  type EvaluationResult,
  type Evaluator,
  evaluate,
  exactMatch,
  judge,
  numberMatch,
  taskEvaluator,
} from "./evaluation/index.js";
// Preferences.
export {
  bothWays,
  type Compare,
  type Comparison,
  comparisons,
  dpoLoss,
  ipoLoss,
  type LabeledComparison,
  pairData,
  planDpo,
  planPreferenceModel,
  planRlhf,
  preferenceModel,
  simpoLoss,
  type TrainDpoOptions,
  type TrainPreferenceModelOptions,
  type TrainRlhfOptions,
  tournament,
  tournamentRewards,
  trainDpo,
  trainPreferenceModel,
  trainRlhf,
  winRateEvaluator,
  withReference,
} from "./preferences/index.js";
// Reinforcement, whole or piece by piece.
export {
  assembleData,
  dropConstantGroups,
  environmentEvaluator,
  groupAdvantages,
  klPenalty,
  klSampleTrain,
  type ProblemOptions,
  planReinforcement,
  policyLoss,
  postKl,
  type TrainReinforcementOptions,
  trainReinforcement,
  trajectoryMetrics,
} from "./reinforcement/index.js";
// Episodes: rollouts, alone and in groups.
export {
  agentic,
  failFast,
  minViableGroup,
  type RolloutHooks,
  RolloutPool,
  type RolloutStrategy,
  retryOnFailure,
  rolloutRecords,
  runRollout,
  runRolloutGroup,
  samplerPolicy,
} from "./rollouts/index.js";
// Runs of every kind, and their loggers.
export {
  consoleLogger,
  type FinishedRun,
  type RunOptions,
  type RunPlan,
  recommendedLearningRate,
  type TrainingLogger,
  tensorBoardLogger,
} from "./runs/index.js";
// Supervised training.
export { planSupervised, type TrainSupervisedOptions, trainSupervised } from "./supervised/index.js";
// Sweeps: many runs, compared by a metric.
export { type SweepOptions, type SweepResult, sweep } from "./sweeps/index.js";
