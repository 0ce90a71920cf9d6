/** Checkpoints as files: downloaded, unpacked, read, merged into base weights, and published. */

export {
  type CheckpointUrls,
  type DownloadedCheckpoint,
  type DownloadOptions,
  type DownloadProgress,
  downloadCheckpoint,
} from "./download.node.js";
export { type ExportedModel, exportModel } from "./export/export-model.node.js";
export type { ExportOptions, ExportProgress, ExportTargetName, GgufType } from "./export/options.js";
export type { AdapterSettings } from "./lora.js";
export { type MergeOptions, mergeAdapter } from "./merge.node.js";
export { type Adapter, readAdapter, writeAdapter } from "./peft.node.js";
export { type CheckpointSource, type PushedCheckpoint, type PushOptions, pushToHub } from "./push.node.js";
export { ArchiveError } from "./safe-path.js";
export {
  decodeSafetensors,
  encodeSafetensors,
  type FloatDtype,
  type FloatTensor,
} from "./safetensors.js";
