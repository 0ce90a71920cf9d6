import { copyFile, type FileHandle, open, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { syncFolder, writeFileAtomic, writeFully } from "../../files.node.js";
import { elementCount } from "../../wire/tensors/element-count.js";
import { configText } from "../config-text.js";
import { type MergedTensor, MergedWeights } from "../merged-weights.node.js";
import { mergedModelCard } from "../model-card.js";
import { quantizeExperts } from "../packed/quantize-experts.js";
import { parseObject } from "../peft.node.js";
import { DTYPE_BYTES, encodeHeader } from "../safetensors.js";
import { shellWord } from "../shell-word.js";
import { SINGLE_WEIGHTS, WEIGHTS_INDEX } from "../weight-files.node.js";
import type { ExportInput, ExportTarget, ExportWork } from "./target.js";

const BLOCK_BYTES = 8 << 20;
const WEIGHT_FILES = /\.(?:safetensors|bin|pt|pth|gguf|h5|msgpack|onnx)$|\.index\.json$/;
/** Files that describe how the base model was made and how good it is: wrong for the merged model. */
const ABOUT_THE_BASE =
  /^readme|^model[-_ ]?card|^train(?:ing|er)?[-_.\w]*\.(?:jsonl?|ya?ml|csv|txt|log)$|_results\.json$/i;

/** A Hugging Face model folder with the adapter in its weights, in the files of the base model. */
export const HF_TARGET: ExportTarget = {
  needsAdapter: true,

  async prepare(input) {
    const { baseFolder, adapter, options, output } = input;
    const weights = await MergedWeights.open(baseFolder, adapter!.folder, {
      dequantize: options.dequantize || options.quantize !== undefined,
    });
    const { tensors, config } =
      options.quantize === undefined ? weights : quantizeExperts(weights.tensors, weights.config);
    const shards = byShard(tensors);
    return {
      bytes: totalBytes(tensors),
      file: undefined,
      commands: [
        `vllm serve ${shellWord(output)}`,
        `mlx_lm.convert --hf-path ${shellWord(output)} --mlx-path ${shellWord(`${output}-mlx`)} -q`,
      ],
      close: () => weights.close(),
      async write(work) {
        await writeShards(shards, (shard) => weights.base.metadataOf(shard), work);
        await copyOtherFiles(baseFolder, work.folder);
        await writeFile(join(work.folder, "README.md"), readme(input, weights));
        await writeIndex(baseFolder, work.folder, shards);
        if (config !== weights.base.config) {
          const original = await readFile(join(baseFolder, "config.json"), "utf8");
          await writeFileAtomic(join(work.folder, "config.json"), configText(config, original));
        }
        await syncFolder(work.folder);
      },
    };
  },
};

type Shard = readonly [name: string, tensors: readonly MergedTensor[]];

function byShard(tensors: readonly MergedTensor[]): Shard[] {
  const shards = new Map<string, MergedTensor[]>();
  for (const tensor of tensors) shards.set(tensor.shard, [...(shards.get(tensor.shard) ?? []), tensor]);
  return [...shards];
}

function bytesOf({ dtype, shape }: MergedTensor): number {
  return elementCount(shape) * DTYPE_BYTES[dtype];
}

function totalBytes(tensors: readonly MergedTensor[]): number {
  return tensors.reduce((sum, tensor) => sum + bytesOf(tensor), 0);
}

/** Writes the shards that are missing; each is on its way to the disk while the next is computed. */
async function writeShards(
  shards: readonly Shard[],
  metadataOf: (shard: string) => Record<string, string>,
  work: ExportWork,
): Promise<void> {
  let syncing = Promise.resolve();
  try {
    for (const [part, [shard, tensors]] of shards.entries()) {
      if (part < work.finishedParts) {
        work.count(totalBytes(tensors));
        continue;
      }
      const handle = await writeShard(join(work.folder, shard), tensors, metadataOf(shard), work);
      const before = syncing;
      syncing = before
        .then(() => handle.sync())
        .finally(() => handle.close())
        .then(() => work.finish(part + 1));
      // It may fail before it is awaited.
      syncing.catch(() => {});
      await before;
    }
  } finally {
    await syncing;
  }
}

/** Writes the bytes of a shard, one block while the next is computed; gives the open file. */
async function writeShard(
  path: string,
  tensors: readonly MergedTensor[],
  metadata: Record<string, string>,
  work: ExportWork,
): Promise<FileHandle> {
  const { header } = encodeHeader(tensors, { format: "pt", ...metadata });
  const handle = await open(path, "w");
  let writing = writeFully(handle, header, 0);
  try {
    let position = header.length;
    let [block, written] = [new Uint8Array(BLOCK_BYTES), new Uint8Array(BLOCK_BYTES)];
    for (const { rowCount, rowLength, dtype, readBytes } of tensors) {
      const blockRows = Math.max(1, Math.floor(BLOCK_BYTES / (rowLength * DTYPE_BYTES[dtype])));
      for (let row = 0; row < rowCount; row += blockRows) {
        const bytes = readBytes(row, Math.min(blockRows, rowCount - row), block);
        await writing;
        work.count(bytes.length);
        writing = writeFully(handle, bytes, position);
        position += bytes.length;
        [block, written] = [written, block];
      }
    }
    await writing;
    return handle;
  } catch (error) {
    // The first error counts; the file can be closed when nothing is written any more.
    await writing.catch(() => {});
    await handle.close();
    throw error;
  }
}

/** Tokenizer, generation settings, code, license and the like. */
async function copyOtherFiles(from: string, to: string): Promise<void> {
  for (const name of await readdir(from)) {
    if (name.startsWith(".") || WEIGHT_FILES.test(name) || ABOUT_THE_BASE.test(name)) continue;
    if ((await stat(join(from, name))).isFile()) await copyFile(join(from, name), join(to, name));
  }
}

async function writeIndex(baseFolder: string, folder: string, shards: readonly Shard[]): Promise<void> {
  if (shards.length === 1 && shards[0]![0] === SINGLE_WEIGHTS) return;
  const before = parseObject(await readFile(join(baseFolder, WEIGHTS_INDEX), "utf8"), WEIGHTS_INDEX);
  const all = shards.flatMap(([, tensors]) => tensors);
  const metadata: Record<string, unknown> = {
    ...(before["metadata"] as object | undefined),
    total_size: totalBytes(all),
  };
  if ("total_parameters" in metadata) {
    metadata["total_parameters"] = all.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  }
  const map = Object.fromEntries(all.map(({ name, shard }) => [name, shard]));
  const index = { metadata, weight_map: map };
  await writeFileAtomic(join(folder, WEIGHTS_INDEX), `${JSON.stringify(index, null, 2)}\n`);
}

function readme({ output, baseModel, adapter }: ExportInput, { adapter: deltas }: MergedWeights): string {
  const { settings, pairs } = deltas!;
  return mergedModelCard({
    name: basename(output),
    baseModel,
    adapter: adapter!.name,
    rank: settings.rank,
    alpha: settings.alpha,
    modules: pairs.size,
  });
}
