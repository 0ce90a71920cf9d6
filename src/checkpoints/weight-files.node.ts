import { readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { TinkerError } from "../errors.js";
import { parseObject } from "./peft.node.js";

/** Names the weight files of a model that has several. */
export const WEIGHTS_INDEX = "model.safetensors.index.json";
/** The weight file of a model that has one. */
export const SINGLE_WEIGHTS = "model.safetensors";

/** The files of a model folder that hold its weights. */
export async function weightFileNames(folder: string): Promise<string[]> {
  return [...new Set(Object.values(await weightMap(folder)))].sort();
}

/** The file of each tensor, as the index says; of a model in one file, only that file, under no name. */
export async function weightMap(folder: string): Promise<Record<string, string>> {
  const names = await readdir(folder);
  if (!names.includes(WEIGHTS_INDEX)) {
    if (names.includes(SINGLE_WEIGHTS)) return { "": SINGLE_WEIGHTS };
    throw new TinkerError(`${folder} holds neither ${SINGLE_WEIGHTS} nor ${WEIGHTS_INDEX}.`);
  }
  const file = join(folder, WEIGHTS_INDEX);
  const index = parseObject(await readFile(file, "utf8"), file);
  const map = (index["weight_map"] ?? {}) as Record<string, unknown>;
  const shards = Object.values(map);
  const wrong = shards.find((shard) => typeof shard !== "string" || basename(shard) !== shard);
  if (shards.length === 0 || wrong !== undefined) {
    throw new TinkerError(`${file} names no files of this folder in its weight_map.`);
  }
  return map as Record<string, string>;
}
