/** A language model for the Vercel AI SDK over a sampler, and training data from its answers. */
export { type AnswerMetadata, readAnswerMetadata } from "./answer-metadata.js";
export { type DatumsFromStepsOptions, datumsFromSteps, type StepLike } from "./datums-from-steps.js";
export {
  type ModelSampler,
  type TinkertsModel,
  type TinkertsModelOptions,
  tinkertsModel,
} from "./language-model.js";
export type { ModelSettings } from "./prepare-call.js";
export { createTinkerts, type TinkertsProvider } from "./provider.js";
export type {
  AnswerEnding,
  CallOptions,
  CallWarning,
  Content,
  FinishReason,
  GenerateResult,
  Prompt,
  PromptPart,
  ProviderMetadata,
  ResponseMetadata,
  StreamPart,
  StreamResult,
  ToolDefinition,
  ToolResultOutput,
  Usage,
} from "./specification.js";
