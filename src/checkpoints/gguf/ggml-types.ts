import { fromFloat32 } from "../safetensors.js";
import { quantizeQ4, quantizeQ5, quantizeQ8 } from "./quantize-blocks.js";
import { quantizeQ4K, quantizeQ6K } from "./quantize-k.node.js";

/** How a tensor's values are stored in a GGUF file. */
export interface GgmlType {
  /** Its number in the format. */
  readonly id: number;
  readonly blockValues: number;
  readonly blockBytes: number;
  /** The stored bytes of whole rows, whose lengths are multiples of `blockValues`. */
  quantize(values: Float32Array): Uint8Array;
}

/** Every type that is written, by its name in GGUF. */
export const GGML_TYPES = {
  f32: { id: 0, blockValues: 1, blockBytes: 4, quantize: (values) => fromFloat32(values, "F32") },
  f16: { id: 1, blockValues: 1, blockBytes: 2, quantize: (values) => fromFloat32(values, "F16") },
  q4_0: { id: 2, blockValues: 32, blockBytes: 18, quantize: quantizeQ4 },
  q5_0: { id: 6, blockValues: 32, blockBytes: 22, quantize: quantizeQ5 },
  q8_0: { id: 8, blockValues: 32, blockBytes: 34, quantize: quantizeQ8 },
  q4_K: { id: 12, blockValues: 256, blockBytes: 144, quantize: quantizeQ4K },
  q6_K: { id: 14, blockValues: 256, blockBytes: 210, quantize: quantizeQ6K },
  bf16: { id: 30, blockValues: 1, blockBytes: 2, quantize: (values) => fromFloat32(values, "BF16") },
} as const satisfies Record<string, GgmlType>;

/** Name of a type that is written. */
export type GgmlTypeName = keyof typeof GGML_TYPES;

/** Bytes of rows of this length. */
export function storedBytes(type: GgmlTypeName, rowCount: number, rowLength: number): number {
  const { blockValues, blockBytes } = GGML_TYPES[type];
  return rowCount * (rowLength / blockValues) * blockBytes;
}
