/** Small model folders and adapters with the names and layouts of real ones, for tests of merges. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { encodeHeader, type SafetensorsDtype } from "../../src/checkpoints/safetensors.js";

/** A tensor of float32, or of bytes in another format. */
export interface MadeTensor {
  readonly shape: readonly number[];
  readonly dtype?: SafetensorsDtype;
  readonly data: Float32Array | Uint8Array;
}

/** Whole numbers from -4 to 4, quarters of them: every sum of a few products is exact. */
export function quarters(shape: readonly number[], seed = 1): MadeTensor {
  let state = seed * 2654435761;
  const data = Float32Array.from({ length: shape.reduce((product, size) => product * size, 1) }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return ((state >>> 16) % 9) / 4 - 1;
  });
  return { shape, data };
}

export function writeTensors(path: string, tensors: Readonly<Record<string, MadeTensor>>): void {
  const entries = Object.entries(tensors).map(([name, { dtype = "F32", shape }]) => ({ name, dtype, shape }));
  const { header } = encodeHeader(entries, { format: "pt" });
  const parts = Object.values(tensors).map(
    ({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
  );
  writeFileSync(path, Buffer.concat([header, ...parts]));
}

/** A model in as many files as there are groups of tensors. */
export function writeModel(
  folder: string,
  config: Readonly<Record<string, unknown>>,
  shards: readonly Readonly<Record<string, MadeTensor>>[],
): string {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  if (shards.length === 1) {
    writeTensors(join(folder, "model.safetensors"), shards[0]!);
    return folder;
  }
  const map: Record<string, string> = {};
  for (const [index, tensors] of shards.entries()) {
    const name = `model-0000${index + 1}-of-0000${shards.length}.safetensors`;
    writeTensors(join(folder, name), tensors);
    for (const tensor of Object.keys(tensors)) map[tensor] = name;
  }
  writeFileSync(
    join(folder, "model.safetensors.index.json"),
    JSON.stringify({ metadata: {}, weight_map: map }),
  );
  return folder;
}

/** The shapes of an adapter's modules: inputs, outputs, and experts with the side that they share, if any. */
export type MadeModules = Readonly<
  Record<string, readonly [inputs: number, outputs: number, experts?: number, shared?: "a" | "b"]>
>;

export const RANK = 2;
export const ALPHA = 4;

/** An adapter of rank 2 and alpha 4. */
export function writeMadeAdapter(folder: string, modules: MadeModules): Record<string, MadeTensor> {
  mkdirSync(folder, { recursive: true });
  const tensors: Record<string, MadeTensor> = {};
  let seed = 100;
  for (const [path, [inputs, outputs, experts, shared]] of Object.entries(modules)) {
    const first = (side: "a" | "b") => (experts === undefined ? [] : [shared === side ? 1 : experts]);
    tensors[`base_model.model.${path}.lora_A.weight`] = quarters([...first("a"), RANK, inputs], seed++);
    tensors[`base_model.model.${path}.lora_B.weight`] = quarters([...first("b"), outputs, RANK], seed++);
  }
  writeTensors(join(folder, "adapter_model.safetensors"), tensors);
  writeFileSync(
    join(folder, "adapter_config.json"),
    JSON.stringify({ peft_type: "LORA", r: RANK, lora_alpha: ALPHA, target_modules: "all-linear" }),
  );
  return tensors;
}
