/** A Tinker server in this process that really trains, with no key, no GPU and no network. */
export { defaultModel, type LocalModel } from "./default-model.js";
export type { GpuPrecision } from "./engine/engine.js";
export type { ModelSource } from "./model-source.js";
export { defaultLimits, type Limits } from "./server/index.js";
export { type LocalBackend, type LocalBackendOptions, startLocalBackend } from "./start.js";
