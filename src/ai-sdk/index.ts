/** A language model for the Vercel AI SDK over a sampler, and its answers as data to train on. */
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
  CallOptions,
  CallWarning,
  Content,
  Ending,
  FinishReason,
  GenerateResult,
  Prompt,
  PromptPart,
  ProviderMetadata,
  ResponseMetadata,
  StreamPart,
  StreamResult,
  Tool,
  ToolResultOutput,
  Usage,
} from "./specification.js";
