/** Checkpoints as files: downloaded, unpacked, read, merged into base weights, and published. */

export { ArchiveError } from "./archive-error.js";
export {
  type CheckpointUrls,
  type DownloadedCheckpoint,
  type DownloadOptions,
  type DownloadProgress,
  downloadCheckpoint,
} from "./download.node.js";
export {
  decodeSafetensors,
  encodeSafetensors,
  type FloatDtype,
  type FloatTensor,
} from "./safetensors.js";
