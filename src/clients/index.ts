/** The clients users hold: service, training, sampling and REST. */
export { Page, PageRequest } from "./page.js";
export { type AccessOptions, type Identity, type ListOptions, RestClient } from "./rest-client.js";
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
