/** A Tinker server in this process that really trains, with no key, no GPU and no network. */
export { defaultModel, type LocalModel } from "./default-model.js";
export type { GpuPrecision } from "./engine/engine.js";
export type { ModelSource } from "./model-source.js";
export type { LocalBackendOptions } from "./options.js";
export { defaultLimits, type ImportAdapterOptions, type Limits } from "./server/index.js";
export { type LocalBackend, startLocalBackend } from "./start.js";
export type { ImportedAdapter } from "./store/index.js";
