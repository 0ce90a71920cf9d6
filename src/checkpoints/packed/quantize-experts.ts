import { elementCount } from "../../wire/tensors/element-count.js";
import type { MergedTensor } from "../merged-tensors.node.js";
import { fromFloat32, toFloat32 } from "../safetensors.js";
import { fp8 } from "./fp8.js";

const BLOCK = 128;
const codec = fp8([BLOCK, BLOCK], "F32");

/** The tensors with the weights of routed experts in FP8, as vLLM reads them. */
export function quantizeExperts(
  tensors: readonly MergedTensor[],
  config: Readonly<Record<string, unknown>>,
): { tensors: MergedTensor[]; config: Record<string, unknown> } {
  const layers = config["num_hidden_layers"];
  const used = tensors.filter(({ name }) => !isUnused(name, typeof layers === "number" ? layers : undefined));
  const quantized = used.filter(isRoutedExpert);
  const all = used.flatMap((tensor) => (quantized.includes(tensor) ? inFp8(tensor) : [tensor]));
  const kept = used.filter((tensor) => tensor.name.endsWith(".weight") && !quantized.includes(tensor));
  const ignore = kept.map(({ name }) => moduleOfWeight(name)).sort();
  return { tensors: all, config: { ...config, compression_config: compressionConfig(ignore) } };
}

/** Tables that are computed anyway, and layers behind the last one, which only help training. */
function isUnused(name: string, layers: number | undefined): boolean {
  const layer = /(?:^|\.)layers\.(\d+)\./.exec(name)?.[1];
  return (
    name.endsWith(".rotary_emb.inv_freq") ||
    (layer !== undefined && layers !== undefined && Number(layer) >= layers)
  );
}

function isRoutedExpert({ name, shape }: MergedTensor): boolean {
  return (
    name.includes(".mlp.experts.") && (shape.length === 3 || (shape.length === 2 && name.endsWith(".weight")))
  );
}

function moduleOfWeight(name: string): string {
  return name.replace(/\.weight$/, "");
}

function inFp8(tensor: MergedTensor): MergedTensor[] {
  const { shape } = tensor;
  const [rows, columns] = shape.slice(-2) as [number, number];
  const groups = Math.ceil(rows / BLOCK);
  const across = Math.ceil(columns / BLOCK);
  // Groups of rows are quantized as a whole, and do not reach from one expert's matrix into the next.
  const encode = (matrix: number, firstGroup: number, endGroup: number) => {
    const start = firstGroup * BLOCK;
    const end = Math.min(rows, endGroup * BLOCK);
    return codec.encode(tensor.readRows(matrix * rows + start, end - start), end - start, columns);
  };
  const weight: MergedTensor = {
    ...tensor,
    dtype: "F8_E4M3",
    isChanged: true,
    readBytes(firstRow, count) {
      const out = new Uint8Array(count * columns);
      for (let row = firstRow; row < firstRow + count; ) {
        const matrix = Math.floor(row / rows);
        const inMatrix = row - matrix * rows;
        const firstGroup = Math.floor(inMatrix / BLOCK);
        const end = Math.min((matrix + 1) * rows, firstRow + count);
        const [bytes] = encode(matrix, firstGroup, Math.ceil((end - matrix * rows) / BLOCK));
        const skipped = (inMatrix - firstGroup * BLOCK) * columns;
        out.set(bytes!.subarray(skipped, skipped + (end - row) * columns), (row - firstRow) * columns);
        row = end;
      }
      return out;
    },
    readRows: () => {
      throw new Error(`${tensor.name} is packed`);
    },
  };
  const scaleShape = [...shape.slice(0, -2), groups, across];
  const readScales = (firstRow: number, count: number) => {
    const out = new Float32Array(count * across);
    for (let row = firstRow; row < firstRow + count; row++) {
      const group = row % groups;
      const [, bytes] = encode(Math.floor(row / groups), group, group + 1);
      out.set(toFloat32(bytes!, "F32", tensor.name), (row - firstRow) * across);
    }
    return out;
  };
  const scale: MergedTensor = {
    name: `${moduleOfWeight(tensor.name)}.weight_scale`,
    shard: tensor.shard,
    dtype: "F32",
    shape: scaleShape,
    isChanged: true,
    rowCount: elementCount(scaleShape.slice(0, -1)),
    rowLength: across,
    readRows: readScales,
    readBytes: (first, count) => fromFloat32(readScales(first, count), "F32"),
  };
  return [weight, scale];
}

/** Settings for vLLM: all linear layers are in FP8, except those to ignore. */
function compressionConfig(ignore: readonly string[]): Record<string, unknown> {
  const eightBits = { num_bits: 8, type: "float", symmetric: true };
  return {
    quant_method: "compressed-tensors",
    format: "float-quantized",
    quantization_status: "compressed",
    global_compression_ratio: null,
    config_groups: {
      group_0: {
        targets: ["Linear"],
        weights: { ...eightBits, strategy: "block", block_structure: [BLOCK, BLOCK], dynamic: false },
        input_activations: { ...eightBits, strategy: "tensor", dynamic: true },
      },
    },
    ignore,
  };
}
