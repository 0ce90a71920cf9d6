import { z } from "zod";
import { parseHeader, type SafetensorsDtype } from "../../../checkpoints/safetensors.js";
import { EngineInputError } from "../engine.js";
import type { StoredTensor } from "../kernels/kernels.js";

/** A model's files, opened: tensors are read one at a time, so that the whole model is never in the process's memory. */
export interface ModelFiles {
  /** Where they are, for people and for those who look for its tokenizer there. */
  readonly path: string;
  /** Parsed content of `config.json`. */
  readonly config: unknown;
  /** Parsed content of `generation_config.json`, if there is one. */
  readonly generationConfig?: unknown;
  /** Tensors by their names in the files. */
  readonly tensors: ReadonlyMap<string, { dtype: SafetensorsDtype; shape: number[] }>;
  read(name: string): StoredTensor;
  close(): void;
}

/** A model's files in memory. */
export interface ModelBytes {
  path: string;
  config: unknown;
  generationConfig?: unknown;
  /** Contents of the `.safetensors` files. */
  weights: readonly Uint8Array[];
}

const SHARD_INDEX = z.object({ weight_map: z.record(z.string(), z.string()) });

/** The files that the `model.safetensors.index.json` at `where` names; all of them lie beside it. */
export function shardsOf(json: unknown, where: string): string[] {
  const parsed = SHARD_INDEX.safeParse(json);
  if (!parsed.success) throw new EngineInputError(`${where}: ${z.prettifyError(parsed.error)}`);
  const files = [...new Set(Object.values(parsed.data.weight_map))].sort();
  const outside = files.find((file) => /[/\\]/.test(file));
  if (outside) throw new EngineInputError(`${where} names a file outside its folder: ${outside}`);
  return files;
}

/** The files of a model whose bytes are in memory. */
export function modelFilesOf({ weights, ...model }: ModelBytes): ModelFiles {
  const tensors = new Map<string, StoredTensor>();
  for (const bytes of weights) {
    const header = parseHeader(bytes.subarray(0, 8), bytes.byteLength, (length) =>
      bytes.subarray(8, 8 + length),
    );
    for (const [name, { dtype, shape, start, end }] of header.tensors) {
      if (!tensors.has(name)) tensors.set(name, { dtype, shape, bytes: bytes.subarray(start, end) });
    }
  }
  const read = (name: string) => {
    const tensor = tensors.get(name);
    if (!tensor) throw new Error(`${model.path} has no tensor ${name}`);
    return tensor;
  };
  return { ...model, tensors, read, close: () => {} };
}
