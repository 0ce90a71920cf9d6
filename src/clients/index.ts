/** The clients users hold: service, training, sampling and REST. */
export { Page, PagePromise } from "./rest/page.js";
export {
  type AccessOptions,
  type CopyWeightsOptions,
  type Identity,
  type ListOptions,
  RestClient,
} from "./rest/rest-client.js";
export type { SampleArguments } from "./sampling/sample-arguments.js";
export { SampleStream } from "./sampling/sample-stream.js";
export {
  type SamplerHandle,
  type SamplerSource,
  SamplingClient,
  type SamplingClientOptions,
} from "./sampling/sampling-client.js";
export {
  type FromStateOptions,
  type LoraTrainingOptions,
  ServiceClient,
  type ServiceClientOptions,
} from "./service/service-client.js";
export {
  type LoadStateOptions,
  type PassOptions,
  type SaveOptions,
  type SaveStateOptions,
  TrainingClient,
  type UnlistedLoss,
} from "./training/training-client.js";
