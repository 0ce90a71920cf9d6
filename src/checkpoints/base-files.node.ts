import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { TinkerError } from "../errors.js";
import { errorCode } from "../files.node.js";
import { parseObject } from "./peft.node.js";
import type { SafetensorsEntry } from "./safetensors.js";
import { SafetensorsFile } from "./safetensors-file.node.js";
import { WEIGHTS_INDEX, weightMap } from "./weight-files.node.js";

/** The open weight files of a model folder, and its config. */
export class BaseFiles {
  readonly folder: string;
  readonly config: Record<string, unknown>;
  readonly shards: readonly string[];
  /** All tensors, in the order of the shards. */
  readonly tensors: ReadonlyMap<string, SafetensorsEntry>;
  readonly #files: ReadonlyMap<string, SafetensorsFile>;
  readonly #shardOf: ReadonlyMap<string, string>;

  private constructor(
    folder: string,
    config: Record<string, unknown>,
    files: ReadonlyMap<string, SafetensorsFile>,
  ) {
    this.folder = folder;
    this.config = config;
    this.shards = [...files.keys()];
    this.#files = files;
    const tensors = new Map<string, SafetensorsEntry>();
    const shardOf = new Map<string, string>();
    for (const [shard, file] of files) {
      for (const [name, entry] of file.header.tensors) {
        const other = shardOf.get(name);
        if (other !== undefined)
          throw new TinkerError(`${folder} has ${name} twice: in ${other} and in ${shard}.`);
        shardOf.set(name, shard);
        tensors.set(name, entry);
      }
    }
    this.tensors = tensors;
    this.#shardOf = shardOf;
  }

  static async open(folder: string): Promise<BaseFiles> {
    const configFile = join(folder, "config.json");
    const config = parseObject(await readText(folder, "config.json"), configFile);
    const listed = await weightMap(folder);
    const shards = [...new Set(Object.values(listed))].sort();
    const files = new Map<string, SafetensorsFile>();
    try {
      for (const shard of shards) {
        try {
          files.set(shard, new SafetensorsFile(join(folder, shard)));
        } catch (error) {
          throw errorCode(error) === "ENOENT" ? lacks(folder, shard, error) : error;
        }
      }
      const base = new BaseFiles(folder, config, files);
      const lost = Object.keys(listed).find((name) => name !== "" && !base.tensors.has(name));
      if (lost !== undefined)
        throw new TinkerError(`${folder} has no tensor ${lost}, which its ${WEIGHTS_INDEX} names.`);
      return base;
    } catch (error) {
      for (const file of files.values()) file.close();
      throw error;
    }
  }

  shardOf(tensor: string): string {
    return this.#shardOf.get(tensor)!;
  }

  /** The metadata in the header of a shard. */
  metadataOf(shard: string): Record<string, string> {
    return this.#files.get(shard)!.header.metadata;
  }

  readBytes(tensor: string, start: number, length: number, into?: Uint8Array): Uint8Array {
    return this.#files.get(this.shardOf(tensor))!.readBytes(tensor, start, length, into);
  }

  close(): void {
    for (const file of this.#files.values()) file.close();
  }
}

async function readText(folder: string, name: string): Promise<string> {
  return readFile(join(folder, name), "utf8").catch((error: unknown) => {
    throw errorCode(error) === "ENOENT" ? lacks(folder, name, error) : error;
  });
}

function lacks(folder: string, name: string, cause: unknown): TinkerError {
  return new TinkerError(`${folder} is not a whole model folder: it has no ${name}.`, { cause });
}
