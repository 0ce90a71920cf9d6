/** Checkpoints as files: downloaded, unpacked, read, merged into base weights, and published. */
export {
  decodeSafetensors,
  encodeSafetensors,
  type FloatDtype,
  type FloatTensor,
} from "./safetensors.js";
