/** A Tinker server in this process that really trains, with no key, no GPU and no network. */
export type { AdapterState, BaseModelInfo, LoraSettings } from "./engine/engine.js";
export { type ClientConfig, defaultLimits, type Limits } from "./server/index.js";
export {
  defaultModel,
  type LocalBackend,
  type LocalBackendOptions,
  type LocalModel,
  startLocalBackend,
} from "./start.js";
export { readAdapterFolder, writeAdapterFiles } from "./store/index.js";
