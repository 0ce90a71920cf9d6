import { TinkerError } from "../../errors.js";
import type { AdapterDeltas } from "../adapter-deltas.node.js";
import type { ExportInput, PreparedExport } from "../export/target.js";
import { expertModule } from "../family-names.js";
import { loraScale } from "../lora.js";
import { MergedWeights } from "../merged-weights.node.js";
import { isPlaceholder, type WeightUpdate } from "../plan-merge.js";
import { ggufArchitecture } from "./architectures.js";
import type { GgmlTypeName } from "./ggml-types.js";
import type { GgufTensor } from "./gguf-header.js";
import { type GgufPlace, ggufPlaces } from "./gguf-places.js";
import { ggufSettings } from "./gguf-settings.js";
import { asRowsOf, type RowSource, rowOf } from "./row-source.js";
import { ggufFile } from "./write-gguf.node.js";

const EXPERT_TENSORS: Readonly<Record<string, string>> = {
  gate_proj: "ffn_gate_exps",
  up_proj: "ffn_up_exps",
  down_proj: "ffn_down_exps",
};

/** An adapter alone that is ready to be written as a GGUF file named `file`, for use over the model's GGUF. */
export async function prepareGgufAdapter(
  { baseFolder, baseModel, adapter, options: { type = "f16" } }: ExportInput,
  file: string,
): Promise<Pick<PreparedExport, "bytes" | "write" | "close">> {
  if (type !== "f32" && type !== "f16" && type !== "bf16") {
    throw new TinkerError(`type: an adapter is stored as f32, f16 or bf16, not ${type}.`);
  }
  const weights = await MergedWeights.open(baseFolder, adapter!.folder, { dequantize: true });
  try {
    const own = weights.adapter!;
    // Of the base model: where an adapter unties the head, the file that it is used with is still tied.
    const settings = ggufSettings(weights.base.config, baseFolder);
    const head = weights.names.moduleOf("lm_head");
    if (settings.isTied && weights.updates.has(`${head}.weight`)) {
      throw new TinkerError(
        `The adapter changes the output head, which ${baseModel} shares with its embedding: llama.cpp cannot change it alone; export the whole model (--to gguf), or train without the head (--for-vllm; in a program, trainUnembed: false).`,
      );
    }
    const tensors = [...plainModules(baseFolder, weights, type), ...expertModules(weights, type)];
    const metadata = {
      "general.architecture": ggufArchitecture(settings),
      "general.type": "adapter",
      "general.name": adapter!.name,
      "general.base_model.count": { uint32: 1 },
      "general.base_model.0.name": baseModel,
      "adapter.type": "lora",
      "adapter.lora.alpha": { float32: own.settings.alpha },
    };
    return { ...ggufFile(file, metadata, tensors), close: () => weights.close() };
  } catch (error) {
    weights.close();
    throw error;
  }
}

function plainModules(folder: string, weights: MergedWeights, type: GgmlTypeName): GgufTensor[] {
  const { updates, adapter } = weights;
  const wanted = new Set([...updates.keys()].filter((name) => !name.includes(".experts.")));
  const settings = ggufSettings(weights.config, folder);
  const places = ggufPlaces(folder, settings, weights, wanted);
  return [...wanted].flatMap((name) => {
    const place = places.get(name);
    if (place === undefined) throw new TinkerError(`GGUF files have no place for an adapter of ${name}.`);
    return matrices(place, updates.get(name)!, adapter!, type);
  });
}

/** The two matrices of a weight in GGUF; of several updates, one below or beside the other. */
function matrices(
  { name, rows, columns }: GgufPlace,
  updates: readonly WeightUpdate[],
  adapter: AdapterDeltas,
  type: GgmlTypeName,
): GgufTensor[] {
  const rank = updates.reduce((sum, { pair }) => sum + adapter.shapeOf(pair.a)[0]!, 0);
  const a = onDemand(rank, columns.length, () => {
    const out = new Float32Array(rank * columns.length);
    let start = 0;
    for (const { pair } of updates) {
      const { data, rows: own } = adapter.read(pair.a);
      for (let k = 0; k < own; k++, start += columns.length) {
        for (const [at, column] of columns.entries()) out[start + at] = data[k * columns.length + column]!;
      }
    }
    return out;
  });
  const b = onDemand(rows.length, rank, () => {
    const whole = new Float32Array(rows.length * rank);
    let first = 0;
    for (const update of updates) {
      const { data, columns: own } = adapter.read(update.pair.b);
      const scale = relativeScale(update.scale, rank, adapter);
      for (let row = 0; row * own < data.length; row++) {
        const at = (update.firstRow + row * update.rowStep) * rank + first;
        for (let k = 0; k < own; k++) whole[at + k] = scale * data[row * own + k]!;
      }
      first += own;
    }
    const out = new Float32Array(whole.length);
    for (const [at, row] of rows.entries()) out.set(whole.subarray(row * rank, (row + 1) * rank), at * rank);
    return out;
  });
  return pairOf(name, [rank, columns.length], a, [rows.length, rank], b, type);
}

function expertModules({ adapter, names }: MergedWeights, type: GgmlTypeName): GgufTensor[] {
  const deltas = adapter!;
  return [...deltas.pairs].flatMap(([path, pair]) => {
    const module = names.moduleOf(path);
    const experts = expertModule(module);
    if (isPlaceholder(deltas, pair)) return [];
    if (experts === undefined) {
      if (!module.includes(".experts.")) return [];
      throw new TinkerError(
        `The adapter has matrices of single experts (${path}): export the whole model instead (--to gguf).`,
      );
    }
    const layer = /\.layers\.(\d+)\./.exec(module)?.[1];
    const name = EXPERT_TENSORS[names.experts[experts.projection]!];
    if (layer === undefined || name === undefined)
      throw new TinkerError(`GGUF files have no place for an adapter of ${path}.`);
    const [shapeA, shapeB] = [deltas.shapeOf(pair.a), deltas.shapeOf(pair.b)];
    const count = Math.max(shapeA[0]!, shapeB[0]!);
    const rank = shapeA[1]!;
    const scale = relativeScale(loraScale(deltas.settings, path), rank, deltas);
    // A matrix that is shared by all experts is written for each.
    const stacked = (tensor: string, rows: number, columns: number, factor: number): RowSource => ({
      rowCount: count * rows,
      rowLength: columns,
      readRows(first, some) {
        const out = new Float32Array(some * columns);
        for (let done = 0; done < some; ) {
          const inside = (first + done) % rows;
          const now = Math.min(some - done, rows - inside);
          const { data } = deltas.read(tensor, Math.floor((first + done) / rows));
          const part = data.subarray(inside * columns, (inside + now) * columns);
          out.set(factor === 1 ? part : part.map((value) => factor * value), done * columns);
          done += now;
        }
        return out;
      },
    });
    const [inputs, outputs] = [shapeA[2]!, shapeB[1]!];
    const a = stacked(pair.a, rank, inputs, 1);
    const b = stacked(pair.b, outputs, rank, scale);
    return pairOf(`blk.${layer}.${name}.weight`, [count, rank, inputs], a, [count, outputs, rank], b, type);
  });
}

function pairOf(
  name: string,
  shapeA: readonly number[],
  a: RowSource,
  shapeB: readonly number[],
  b: RowSource,
  type: GgmlTypeName,
): GgufTensor[] {
  return [
    { name: `${name}.lora_a`, shape: shapeA, type, rows: a },
    { name: `${name}.lora_b`, shape: shapeB, type, rows: b },
  ];
}

/** llama.cpp multiplies by alpha / rank, with one alpha for all modules; what is left is multiplied into B. */
function relativeScale(scale: number, rank: number, { settings: { alpha } }: AdapterDeltas): number {
  return alpha === 0 ? 0 : (scale * rank) / alpha;
}

/** A matrix that is computed when it is written. */
function onDemand(rowCount: number, rowLength: number, values: () => Float32Array): RowSource {
  return {
    rowCount,
    rowLength,
    readRows: (first, count) => asRowsOf(rowOf(values()), rowLength).readRows(first, count),
  };
}
