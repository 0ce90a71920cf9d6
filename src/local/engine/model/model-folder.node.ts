import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { SafetensorsEntry } from "../../../checkpoints/safetensors.js";
import { SafetensorsFile } from "../../../checkpoints/safetensors-file.node.js";
import { EngineInputError } from "../engine.js";
import { type ModelFiles, shardsOf } from "./model-files.js";

/** The files of a Hugging Face folder. */
export function openModelFolder(folder: string): ModelFiles {
  const generation = join(folder, "generation_config.json");
  const config = readJson(join(folder, "config.json"));
  const files: SafetensorsFile[] = [];
  const close = () => {
    for (const file of files.splice(0)) file.close();
  };
  const tensors = new Map<string, SafetensorsEntry & { file: SafetensorsFile }>();
  try {
    for (const name of weightFiles(folder)) {
      const file = new SafetensorsFile(join(folder, name));
      files.push(file);
      for (const [stored, entry] of file.header.tensors) {
        if (!tensors.has(stored)) tensors.set(stored, { ...entry, file });
      }
    }
  } catch (error) {
    close();
    throw error;
  }
  return {
    path: folder,
    config,
    ...(existsSync(generation) && { generationConfig: readJson(generation) }),
    tensors,
    read(name) {
      const tensor = tensors.get(name);
      if (!tensor) throw new Error(`${folder} has no tensor ${name}`);
      const { dtype, shape, start, end, file } = tensor;
      return { dtype, shape, bytes: file.readBytes(name, 0, end - start) };
    },
    close,
  };
}

function weightFiles(folder: string): string[] {
  const index = join(folder, "model.safetensors.index.json");
  if (existsSync(index)) return readShards(index);
  const files = readdirSync(folder).filter((file) => file.endsWith(".safetensors"));
  if (files.length === 0) throw new EngineInputError(`${folder} has no .safetensors files`);
  return files.includes("model.safetensors") ? ["model.safetensors"] : files.sort();
}

/** The files that a folder's `model.safetensors.index.json` names. */
export function readShards(index: string): string[] {
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(index, "utf8"));
  } catch {
    throw new EngineInputError(`${index} is not JSON`);
  }
  return shardsOf(json, index);
}

function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    throw new EngineInputError(
      `cannot read ${path}: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}
