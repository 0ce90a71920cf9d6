import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { SafetensorsFile } from "../../../checkpoints/safetensors-file.node.js";
import { type BaseModelInfo, EngineInputError } from "../engine.js";
import type { Kernels, Matrix } from "../kernels/kernels.js";
import { type DecoderWeights, decoderLayout, packWeights } from "./decoder-weights.js";
import { type ModelConfig, parseModelConfig, readModelConfig } from "./model-config.js";
import { RopeTables } from "./rope.js";
import { type FileTensor, type TensorPlace, writeTensors } from "./tensor-layout.js";

/** What the decoder needs of a model, frozen or trained. */
export interface DecoderModel {
  config: ModelConfig;
  weights: DecoderWeights<Matrix>;
  rope: RopeTables;
}

/** A model that adapters are trained on and samples are drawn from. */
export interface BaseModel extends DecoderModel {
  info: BaseModelInfo;
}

/** Reads a model from a Hugging Face folder: configuration, frozen weights, rotary tables. */
export function loadBaseModel(kernels: Kernels, name: string, folder: string): BaseModel {
  const config = readModelConfig(folder);
  const layout = decoderLayout(config);
  const weights = withRoom(name, layout.length, () => {
    const flat = kernels.alloc(layout.length);
    writeTensors(kernels, flat, readWeights(folder, layout.places));
    return packWeights(kernels, layout.bind(flat));
  });
  return {
    config,
    weights,
    rope: new RopeTables(kernels, config),
    info: {
      name,
      maxContextLength: config.maxPositions,
      vocabSize: config.vocabSize,
      eosTokenIds: config.eosTokenIds,
      tokenizerPath: folder,
      arch: config.arch,
      parameters: layout.length,
    },
  };
}

const MAX_MODEL_BYTES = 2 ** 32;

/** Refuses a model by its `config.json` alone, before anybody downloads its weights. */
export function checkModel(json: unknown, name: string): void {
  const { length } = decoderLayout(parseModelConfig(json, name));
  if (4 * length > MAX_MODEL_BYTES) throw tooLarge(name, length, "WebAssembly reaches 4 GiB");
}

function tooLarge(name: string, parameters: number, why: string): EngineInputError {
  const millions = Math.round(parameters / 1e6);
  return new EngineInputError(
    `${name} is too large for this engine: ${millions} million parameters of 4 bytes; ${why}`,
  );
}

function withRoom<T>(name: string, parameters: number, load: () => T): T {
  try {
    return load();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw tooLarge(name, parameters, error.message);
  }
}

/** The tensors of every safetensors file of a folder, with their places; in the end all places must have had theirs. */
export function* readWeights(
  folder: string,
  places: TensorPlace[],
): Generator<readonly [TensorPlace, FileTensor]> {
  const missing = new Map(places.map((place) => [place.name, place]));
  for (const file of weightFiles(folder)) {
    const tensors = new SafetensorsFile(join(folder, file));
    try {
      for (const stored of tensors.header.tensors.keys()) {
        // Files of the bare decoder (without its language-model head) leave the prefix out.
        const name = missing.has(stored) ? stored : `model.${stored}`;
        const place = missing.get(name);
        if (!place) continue;
        yield [place, tensors.read(stored)];
        missing.delete(name);
      }
    } finally {
      tensors.close();
    }
  }
  if (missing.size > 0) {
    const names = [...missing.keys()];
    throw new EngineInputError(`${folder} lacks ${names.length} tensors, the first is ${names[0]}`);
  }
}

function weightFiles(folder: string): string[] {
  const index = join(folder, "model.safetensors.index.json");
  if (existsSync(index)) {
    const files = shardsOf(index);
    const outside = files.find((file) => /[/\\]/.test(file));
    if (outside) throw new EngineInputError(`${index} names a file outside its folder: ${outside}`);
    return files.sort();
  }
  const files = readdirSync(folder).filter((file) => file.endsWith(".safetensors"));
  if (files.length === 0) throw new EngineInputError(`${folder} has no .safetensors files`);
  return files.includes("model.safetensors") ? ["model.safetensors"] : files.sort();
}

const SHARD_INDEX = z.object({ weight_map: z.record(z.string(), z.string()) });

/** The files that a `model.safetensors.index.json` names. */
export function shardsOf(index: string): string[] {
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(index, "utf8"));
  } catch {
    throw new EngineInputError(`${index} is not JSON`);
  }
  const parsed = SHARD_INDEX.safeParse(json);
  if (!parsed.success) throw new EngineInputError(`${index}: ${z.prettifyError(parsed.error)}`);
  return [...new Set(Object.values(parsed.data.weight_map))];
}
