import type { GgufType } from "../export/options.js";
import type { GgufSource } from "./architectures.js";
import { GGML_TYPES, type GgmlTypeName } from "./ggml-types.js";

/** The number of each choice of types in a file's metadata. */
export const FILE_TYPES: Readonly<Record<GgufType, number>> = {
  f32: 0,
  f16: 1,
  q4_0: 2,
  q8_0: 7,
  q4_K_M: 15,
  q6_K: 18,
  bf16: 32,
};

/** Small, and what follows depends on each value: they stay as they are. */
const EXACT = /(?:norm|ffn_gate_inp|ffn_gate_inp_shexp|ssm_conv1d|rope_freqs|attn_sinks)\.weight$/;

/** How a tensor is stored in a file of this kind. */
export function typeOf(
  { name, shape }: GgufSource,
  kind: GgufType,
  layers: number,
  hasHead: boolean,
): GgmlTypeName {
  if (shape.length < 2 || !name.endsWith(".weight") || EXACT.test(name)) return "f32";
  const isHead = name === (hasHead ? "output.weight" : "token_embd.weight");
  switch (kind) {
    case "f32":
    case "f16":
    case "bf16":
      return kind;
    case "q4_0":
    case "q4_K_M":
      return fitting(
        isHead || (kind === "q4_K_M" && isSensitive(name, layers)) ? "q6_K" : baseType(kind),
        shape,
      );
    case "q6_K":
    case "q8_0":
      return fitting(kind, shape);
    default:
      return kind satisfies never;
  }
}

const baseType = (kind: "q4_0" | "q4_K_M"): GgmlTypeName => (kind === "q4_0" ? "q4_0" : "q4_K");

/** Whether a tensor gets more bits in a q4_K_M file: values and outputs of some layers, as in llama.cpp's. */
function isSensitive(name: string, layers: number): boolean {
  const match = /^blk\.(\d+)\.(attn_v|attn_qkv|ffn_down|ffn_down_exps)\.weight$/.exec(name);
  if (match === null) return false;
  if (match[2] === "attn_qkv") return true;
  const layer = Number(match[1]);
  const eighth = Math.floor(layers / 8);
  return layer < eighth || layer >= Math.floor((7 * layers) / 8) || (layer - eighth) % 3 === 2;
}

/** The type itself if rows are whole blocks of it, else the next one with smaller blocks. */
function fitting(type: GgmlTypeName, shape: readonly number[]): GgmlTypeName {
  const rowLength = shape.at(-1)!;
  const choices: readonly GgmlTypeName[] =
    type === "q4_K" ? ["q4_K", "q5_0", "f16"] : type === "q6_K" ? ["q6_K", "q8_0", "f16"] : [type, "f16"];
  return choices.find((choice) => rowLength % GGML_TYPES[choice].blockValues === 0)!;
}
