/** The engine turns token arrays into logprobs, gradients, updated adapters and samples, on WebGPU or WebAssembly, also in a page. */
export { type CreateEngineOptions, createEngine } from "./create-engine.js";
export {
  type AdamSettings,
  type AdapterState,
  type BaseModelInfo,
  CancelledError,
  type DeviceSetting,
  type Engine,
  type EngineDatum,
  type EngineDevice,
  EngineInputError,
  EngineLostError,
  type EngineSample,
  type ForwardBackwardCall,
  type ForwardBackwardResult,
  type JsonConstraint,
  type LoraSettings,
  type LossConfig,
  type LossName,
  type NamedTensor,
  type OnLost,
  type OnToken,
  type SampleCall,
  type SampledToken,
  type SampleResult,
  type TopTokens,
} from "./engine.js";
export type { EngineModel, ModelTokenizer } from "./engine-core.js";
export { type FetchedModel, fetchModel } from "./fetch-model.js";
export { type ModelBytes, type ModelFiles, modelFilesOf } from "./model/model-files.js";
export { checkJsonConstraint } from "./sampling/json/json-sampling.js";
