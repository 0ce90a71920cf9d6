/** What travels: the types of every request and answer, tensors, and their protobuf and JSON forms. */
export { base64ToBytes, bytesToBase64 } from "./base64.js";
export { estimateDatumProtoBytes, estimateModelInputBytes } from "./byte-estimates.js";
export {
  checkAdamParams,
  checkLoraConfig,
  checkOptimizerConfig,
  checkOptimParams,
  checkSampleRequest,
  checkSamplingParams,
  checkTtlSeconds,
  type SampleRequestLike,
} from "./checks.js";
export { checkDatum, Datum, type DatumInit, type DatumLike, type ProvenanceSpan } from "./datum.js";
export {
  decodeRequest,
  type Endpoint,
  encodeRequest,
  type FutureKind,
  type HttpMethod,
  type OperationEndpoint,
  type PoolName,
  type UntypedFuture,
} from "./endpoints/endpoint.js";
export { endpointNames, endpoints } from "./endpoints/index.js";
export { fieldNames, inUsersWords, inWireWords } from "./field-names.js";
export type { FilledMessage, GivenMessage, Shape } from "./fields.js";
export { forwardBackwardOutputFromJson, forwardBackwardOutputToJson } from "./forward-backward-json.js";
export { encodeForwardBackwardRequest } from "./forward-backward-request-writer.js";
export type * from "./future-types.js";
export { camelToSnake as wireName, fromWireJson, toWireJson } from "./json-keys.js";
export {
  checkLossFnConfig,
  checkLossFnInputs,
  checkLossFnName,
  describeLoss,
  type LossFnConfig,
  type LossFnInputsLike,
  type LossFnName,
  type LossFnOutput,
  type LossInputName,
  type LossMetrics,
  PUBLISHED_LOSSES,
  type PublishedLoss,
} from "./losses.js";
export {
  chunkLength,
  type DmelChunk,
  type EncodedTextChunk,
  type ImageAssetPointerChunk,
  type ImageChunk,
  type ImageFormat,
  ModelInput,
  type ModelInputChunk,
  type ModelInputChunkLike,
  type ModelInputLike,
  type TokensLike,
} from "./model-input.js";
export { modelInputField, modelInputToJson } from "./model-input-json.js";
export {
  forwardBackwardRequestFromJson,
  forwardBackwardRequestToJson,
  sampleRequestFromJson,
  sampleRequestToJson,
} from "./request-json.js";
export type * from "./rest-types.js";
export { sampleResponseFromJson, sampleResponseToJson } from "./sample-json.js";
export type * from "./sampling-types.js";
export * from "./session-types.js";
export {
  type NestedArray,
  TensorData,
  type TensorDataLike,
  type TensorFromOptions,
  type TensorLike,
  type TensorParts,
} from "./tensor-data.js";
export { tensorFromJson, tensorToJson } from "./tensor-json.js";
export type {
  NestedNumbers,
  TensorDtype,
  TensorValues,
  TypedBigInts,
  TypedNumbers,
} from "./tensor-values.js";
export {
  type CheckpointKind,
  checkTinkerPath,
  formatTinkerPath,
  isTinkerPath,
  parseTinkerPath,
  type TinkerPath,
} from "./tinker-path.js";
export type * from "./training-types.js";
