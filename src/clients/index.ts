/** The clients users hold: service, training, sampling and REST. */
export { Page, PagePromise } from "./rest/page.js";
export {
  type AccessOptions,
  type CopyWeightsOptions,
  type Identity,
  type ListOptions,
  RestClient,
} from "./rest/rest-client.js";
export type { SampleArguments } from "./sample-arguments.js";
export {
  type SamplerHandle,
  SamplingClient,
  type SamplingClientOptions,
} from "./sampling-client.js";
export {
  type FromStateOptions,
  type LoraTrainingOptions,
  ServiceClient,
  type ServiceClientOptions,
} from "./service-client.js";
export {
  type LoadStateOptions,
  type SaveOptions,
  type SaveStateOptions,
  TrainingClient,
} from "./training-client.js";
