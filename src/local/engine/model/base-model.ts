import { z } from "zod";
import { DTYPE_BYTES, toFloat32 } from "../../../checkpoints/safetensors.js";
import { type BaseModelInfo, EngineInputError } from "../engine.js";
import { type F32, type Kernels, type Matrix, partsOf, sliceBuffer } from "../kernels/kernels.js";
import { type DecoderLayout, type DecoderWeights, decoderLayout } from "./decoder-weights.js";
import { type ModelConfig, modelConfigOf, parseModelConfig } from "./model-config.js";
import type { ModelFiles } from "./model-files.js";
import { RopeTables } from "./rope.js";
import { checkShape, type Range, sizeOf, type TensorPlace } from "./tensor-layout.js";

/** Weights of a decoder, frozen or trained. */
export interface DecoderModel {
  config: ModelConfig;
  weights: DecoderWeights<Matrix>;
  rope: RopeTables;
}

/** A model that adapters are trained on and samples are drawn from. */
export interface BaseModel extends DecoderModel {
  info: BaseModelInfo;
}

/** Reads a model: configuration, rotary tables, and the frozen weights, one tensor after another. */
export async function loadBaseModel(kernels: Kernels, name: string, files: ModelFiles): Promise<BaseModel> {
  const config = modelConfigOf(files);
  const layout = decoderLayout(config);
  return {
    config,
    weights: await loadWeights(kernels, name, files, layout),
    rope: new RopeTables(kernels, config),
    info: {
      name,
      maxContextLength: config.maxPositions,
      vocabSize: config.vocabSize,
      eosTokenIds: config.eosTokenIds,
      tokenizerPath: files.path,
      arch: config.arch,
      parameters: layout.length,
    },
  };
}

async function loadWeights(
  kernels: Kernels,
  name: string,
  files: ModelFiles,
  layout: DecoderLayout,
): Promise<DecoderWeights<Matrix>> {
  const stored = storedNames(files, layout.places);
  const dtypeOf = (place: TensorPlace) => files.tensors.get(stored.get(place)!)!.dtype;
  const dtypes = new Map<Range, Set<ReturnType<typeof dtypeOf>>>();
  for (const place of layout.places) {
    const ofBlock = dtypes.get(place.block) ?? new Set();
    dtypes.set(place.block, ofBlock.add(dtypeOf(place)));
  }
  const targets = new Map<Range, Matrix>();
  const kept = <M extends Matrix>(block: Range, target: M): M => {
    targets.set(block, target);
    return target;
  };
  try {
    const weights = layout.place<Matrix>(
      ({ block, inputs, outputs }) => {
        const [dtype = "F32", ...others] = dtypes.get(block)!;
        return kept(block, kernels.frozen(inputs, outputs, others.length > 0 ? "F32" : dtype));
      },
      vectorsOf(kernels, layout, kept),
    );
    for (const place of layout.places) {
      const tensor = files.read(stored.get(place)!);
      const target = targets.get(place.block)!;
      const start = place.start - place.block.start;
      if (target.kind === "frozen") await kernels.fill(target, start, tensor);
      else {
        const values = toFloat32(tensor.bytes, tensor.dtype, place.name);
        kernels.upload(sliceBuffer(target, start, sizeOf(place)), values);
      }
    }
    return weights;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw tooLarge(name, layout.length, error.message);
  }
}

/** Room for each vector, all in one buffer: an operation that reads several needs one binding for them. */
function vectorsOf(
  kernels: Kernels,
  { places, matrixLength }: DecoderLayout,
  kept: (block: Range, target: F32) => F32,
): (block: Range) => F32 {
  const blocks = new Set(places.map(({ block }) => block).filter(({ start }) => start >= matrixLength));
  const { starts, length } = partsOf(Array.from(blocks, (block) => block.length));
  const startOf = new Map(Array.from(blocks, (block, index) => [block, starts[index]!]));
  // Taken with the first one: the matrices come before.
  let all: F32 | undefined;
  return (block) => {
    all ??= kernels.alloc(length);
    return kept(block, sliceBuffer(all, startOf.get(block)!, block.length));
  };
}

/** Names of the tensors in the files; all must be present with the right shape. */
export function storedNames(files: ModelFiles, places: TensorPlace[]): Map<TensorPlace, string> {
  const names = new Map<TensorPlace, string>();
  for (const place of places) {
    // Files of the bare decoder (without its language-model head) leave the prefix out.
    const name = [place.name, place.name.replace(/^model\./, "")].find((known) => files.tensors.has(known));
    if (name === undefined) continue;
    checkShape(place, files.tensors.get(name)!.shape);
    names.set(place, name);
  }
  const missing = places.filter((place) => !names.has(place));
  if (missing.length > 0) {
    throw new EngineInputError(
      `${files.path} lacks ${missing.length} tensors, the first is ${missing[0]!.name}`,
    );
  }
  return names;
}

/** The size of a model, by its `config.json`. */
export function countParameters(config: unknown, name: string): number {
  return decoderLayout(parseModelConfig(config, name)).length;
}

/** Memory that a model's weights must fit into. */
export type ModelRoom = { device: "cpu" } | { device: "gpu"; memoryBytes: number };

const MAX_WASM_BYTES = 2 ** 32;

/** Refuses a model by its `config.json` alone, before its weights are downloaded. */
export function checkModel(json: unknown, name: string, room: ModelRoom = { device: "cpu" }): void {
  const { length } = decoderLayout(parseModelConfig(json, name));
  if (room.device === "cpu") {
    if (4 * length > MAX_WASM_BYTES) throw tooLarge(name, length, "WebAssembly reaches 4 GiB", 4);
  } else {
    const bytes = storedBytes(json);
    const gibibytes = (room.memoryBytes / 2 ** 30).toFixed(1);
    if (bytes * length > room.memoryBytes)
      throw tooLarge(name, length, `the GPU has ${gibibytes} GiB for it`, bytes);
  }
}

const DTYPE_SETTING = z.looseObject({ dtype: z.string().nullish(), torch_dtype: z.string().nullish() });

/** Bytes of a value in the model's files, by its `config.json`. */
function storedBytes(json: unknown): number {
  const { data } = DTYPE_SETTING.safeParse(json);
  return /16$/.test(data?.dtype ?? data?.torch_dtype ?? "") ? DTYPE_BYTES.F16 : DTYPE_BYTES.F32;
}

function tooLarge(name: string, parameters: number, why: string, valueBytes?: number): EngineInputError {
  const size = `${Math.round(parameters / 1e6)} million parameters`;
  const each = valueBytes === undefined ? "" : ` of ${valueBytes} bytes`;
  return new EngineInputError(`${name} is too large for this engine: ${size}${each}; ${why}`);
}
