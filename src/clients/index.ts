/** The clients that users call: service, training, sampling and REST. */
export type * from "./context.js";
export type { CreateCustomLossOptions } from "./custom-losses.js";
export * from "./rest/page.js";
export * from "./rest/rest-client.js";
export type * from "./sampling/sample-arguments.js";
export * from "./sampling/sample-stream.js";
export * from "./sampling/sampling-client.js";
export * from "./service/service-client.js";
export * from "./training/training-client.js";
