import {
  copyFile,
  type FileHandle,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  stat,
  writeFile,
} from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { TinkerError, ValidationError } from "../errors.js";
import { cannotWrite, errorCode, writeFileAtomic, writeFully } from "../files.node.js";
import { throwIfAborted } from "../transport/index.js";
import { AdapterDeltas } from "./adapter-deltas.node.js";
import { addDeltaRows, checkDelta, type LoraDelta } from "./lora.js";
import { mergedModelCard } from "./model-card.js";
import { parseObject } from "./peft.node.js";
import {
  DTYPE_BYTES,
  elementCount,
  encodeHeader,
  fromFloat32,
  isFloatDtype,
  type SafetensorsEntry,
  toFloat32,
} from "./safetensors.js";
import { SafetensorsFile } from "./safetensors-file.node.js";

/** Options of `mergeAdapter`. */
export interface MergeOptions {
  /** The base model's name in the README. Default: as the adapter says, else the name of the folder. */
  baseModel?: string | undefined;
  /** The adapter's name in the README, a `tinker://` path for example. Default: the name of its folder. */
  adapter?: string | undefined;
  signal?: AbortSignal | undefined;
}

const INDEX = "model.safetensors.index.json";
const SINGLE = "model.safetensors";
const HEAD = "lm_head";
const BLOCK_BYTES = 8 << 20;
const WEIGHT_FILES = /\.(?:safetensors|bin|pt|pth|gguf|h5|msgpack|onnx)$|\.index\.json$/;
/** Files that tell how the base model was made and what it can do: of the merged model they would be wrong. */
const ABOUT_THE_BASE =
  /^readme|^model[-_ ]?card|^train(?:ing|er)?[-_.\w]*\.(?:jsonl?|ya?ml|csv|txt|log)$|_results\.json$/i;

/** One tensor of the output: a tensor of the base, perhaps under another name, perhaps changed. */
interface Planned {
  name: string;
  source: string;
  delta: string | undefined;
}

/**
 * Adds an adapter to the weights of its base model and writes the sum as a model folder of its own, with the base's
 * dtypes and shards. Tensors pass through memory in pieces, whatever the size of the model.
 */
export async function mergeAdapter(
  baseFolder: string,
  adapterFolder: string,
  outputFolder: string,
  options: MergeOptions = {},
): Promise<void> {
  const output = resolve(outputFolder);
  await checkFree(output);
  const configFile = join(baseFolder, "config.json");
  const config = parseObject(await readFile(configFile, "utf8"), configFile);
  if (config["quantization_config"] !== undefined) {
    throw new TinkerError(`${baseFolder} is quantized; an adapter can only be merged into plain weights.`);
  }
  const deltas = await AdapterDeltas.open(adapterFolder);
  const work = join(dirname(output), `.${basename(output)}.merge`);
  const opened: SafetensorsFile[] = [];
  try {
    const shards = await baseShards(baseFolder);
    const files = shards.map((shard) => {
      const file = new SafetensorsFile(join(baseFolder, shard));
      opened.push(file);
      return { shard, file };
    });
    const { plan, untied } = planTensors(
      new Map(files.map(({ shard, file }) => [shard, [...file.header.tensors.keys()]])),
      deltas.modules,
      config,
    );
    await rm(work, { recursive: true, force: true });
    await mkdir(work, { recursive: true });
    for (const { shard, file } of files) {
      await writeShard(join(work, shard), file, plan.get(shard)!, deltas, options.signal);
    }
    await copyOtherFiles(baseFolder, work);
    await writeFile(join(work, "README.md"), readme(baseFolder, adapterFolder, output, deltas, options));
    if (shards.length > 1 || shards[0] !== SINGLE) await writeIndex(baseFolder, work, plan);
    if (untied) await writeFileAtomic(join(work, "config.json"), untiedConfig(config));
    await rename(work, output);
  } catch (error) {
    throw error instanceof TinkerError || errorCode(error) === undefined ? error : cannotWrite(output, error);
  } finally {
    for (const file of [deltas, ...opened]) file.close();
    await rm(work, { recursive: true, force: true });
  }
}

/** An empty folder may be in the way; anything else may not. */
async function checkFree(output: string): Promise<void> {
  try {
    await rmdir(output);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return;
    const isThere = await lstat(output).catch(() => undefined);
    if (isThere === undefined) throw cannotWrite(output, error);
    throw new ValidationError("outputFolder", `${output} exists already.`);
  }
}

async function baseShards(folder: string): Promise<string[]> {
  const names = await readdir(folder);
  if (!names.includes(INDEX)) {
    if (names.includes(SINGLE)) return [SINGLE];
    throw new TinkerError(`${folder} holds neither ${SINGLE} nor ${INDEX}.`);
  }
  const index = parseObject(await readFile(join(folder, INDEX), "utf8"), join(folder, INDEX));
  const shards = [...new Set(Object.values((index["weight_map"] ?? {}) as Record<string, unknown>))];
  const wrong = shards.find((shard) => typeof shard !== "string" || basename(shard) !== shard);
  if (shards.length === 0 || wrong !== undefined) {
    throw new TinkerError(`${join(folder, INDEX)} names no files of this folder in its weight_map.`);
  }
  return (shards as string[]).sort();
}

/** Which tensors go into which file; a tied head that the adapter changes becomes a tensor of its own. */
function planTensors(
  shards: ReadonlyMap<string, readonly string[]>,
  modules: readonly string[],
  config: Record<string, unknown>,
): { plan: Map<string, Planned[]>; untied: boolean } {
  const names = [...shards.values()].flat();
  const headWeight = `${HEAD}.weight`;
  const isTied = tiedByConfig(config) ?? !names.includes(headWeight);
  const untied = isTied && modules.includes(HEAD);
  const embedding = names.filter((name) => /(?:^|\.)(?:embed_tokens|wte)\.weight$/.test(name));
  if (untied && embedding.length !== 1) {
    throw new TinkerError(
      `The adapter changes ${HEAD}, which is tied to the embedding, but the base has ${embedding.length} embeddings.`,
    );
  }
  const homeless = modules.filter(
    (module) => !names.includes(`${module}.weight`) && !(untied && module === HEAD),
  );
  if (homeless.length > 0) {
    const shown = homeless.slice(0, 3).join(", ");
    throw new TinkerError(
      `The base model has no weight for ${homeless.length} of the ${modules.length} modules of the adapter: ${shown}${homeless.length > 3 ? ", ..." : ""}.`,
    );
  }
  const changed = new Set(modules);
  const plan = new Map<string, Planned[]>();
  for (const [shard, tensors] of shards) {
    const planned = tensors
      .filter((name) => !(untied && name === headWeight))
      .map((name) => {
        const module = name.replace(/\.weight$/, "");
        return { name, source: name, delta: module !== name && changed.has(module) ? module : undefined };
      });
    if (untied && tensors.includes(embedding[0]!)) {
      planned.push({ name: headWeight, source: embedding[0]!, delta: HEAD });
    }
    plan.set(shard, planned);
  }
  return { plan, untied };
}

function tiedByConfig(config: Record<string, unknown>): boolean | undefined {
  const inner = config["text_config"] as Record<string, unknown> | undefined;
  const value = config["tie_word_embeddings"] ?? inner?.["tie_word_embeddings"];
  return typeof value === "boolean" ? value : undefined;
}

function untiedConfig(config: Record<string, unknown>): string {
  const changed: Record<string, unknown> = { ...config, tie_word_embeddings: false };
  const inner = config["text_config"];
  if (typeof inner === "object" && inner !== null) {
    changed["text_config"] = { ...inner, tie_word_embeddings: false };
  }
  return `${JSON.stringify(changed, null, 2)}\n`;
}

async function writeShard(
  path: string,
  base: SafetensorsFile,
  plan: readonly Planned[],
  deltas: AdapterDeltas,
  signal: AbortSignal | undefined,
): Promise<void> {
  const entries = plan.map(({ name, source }) => ({ ...base.entry(source), name }));
  const { header } = encodeHeader(entries, { format: "pt", ...base.header.metadata });
  const handle = await open(path, "wx");
  try {
    await writeFully(handle, header, 0);
    let position = header.length;
    for (const { source, delta } of plan) {
      throwIfAborted(signal, "The merge");
      const loaded = delta === undefined ? undefined : deltas.read(delta);
      position = await writeTensor(handle, position, base, source, base.entry(source), loaded);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function writeTensor(
  handle: FileHandle,
  start: number,
  base: SafetensorsFile,
  name: string,
  { dtype, shape }: SafetensorsEntry,
  delta: LoraDelta | undefined,
): Promise<number> {
  const totalBytes = elementCount(shape) * DTYPE_BYTES[dtype];
  let blockBytes = BLOCK_BYTES;
  const rowBytes = (shape[1] ?? 1) * DTYPE_BYTES[dtype];
  if (delta !== undefined) {
    checkDelta(name, shape, delta);
    blockBytes = Math.max(1, Math.floor(BLOCK_BYTES / rowBytes)) * rowBytes;
  }
  for (let at = 0; at < totalBytes; at += blockBytes) {
    let bytes = base.readBytes(name, at, Math.min(blockBytes, totalBytes - at));
    if (delta !== undefined) {
      if (!isFloatDtype(dtype)) {
        throw new TinkerError(`${name} is ${dtype}; an adapter can be merged into F32, F16 and BF16.`);
      }
      const rows = toFloat32(bytes, dtype, name);
      addDeltaRows(rows, at / rowBytes, delta);
      bytes = fromFloat32(rows, dtype);
    }
    await writeFully(handle, bytes, start + at);
  }
  return start + totalBytes;
}

/** Tokenizer, generation settings, code, license and the like. */
async function copyOtherFiles(from: string, to: string): Promise<void> {
  for (const name of await readdir(from)) {
    if (name.startsWith(".") || WEIGHT_FILES.test(name) || ABOUT_THE_BASE.test(name)) continue;
    if ((await stat(join(from, name))).isFile()) await copyFile(join(from, name), join(to, name));
  }
}

function readme(
  baseFolder: string,
  adapterFolder: string,
  output: string,
  { settings, modules }: AdapterDeltas,
  options: MergeOptions,
): string {
  return mergedModelCard({
    name: basename(output),
    baseModel: options.baseModel ?? settings.baseModel ?? basename(resolve(baseFolder)),
    adapter: options.adapter ?? basename(resolve(adapterFolder)),
    rank: settings.rank,
    alpha: settings.alpha,
    modules: modules.length,
  });
}

async function writeIndex(
  base: string,
  work: string,
  plan: ReadonlyMap<string, readonly Planned[]>,
): Promise<void> {
  const old = parseObject(await readFile(join(base, INDEX), "utf8"), INDEX);
  const weightMap: Record<string, string> = {};
  let totalBytes = 0;
  let totalParameters = 0;
  for (const [shard, planned] of plan) {
    const file = new SafetensorsFile(join(work, shard));
    for (const { name } of planned) {
      const entry = file.entry(name);
      weightMap[name] = shard;
      totalBytes += entry.end - entry.start;
      totalParameters += elementCount(entry.shape);
    }
    file.close();
  }
  const metadata: Record<string, unknown> = {
    ...(old["metadata"] as object | undefined),
    total_size: totalBytes,
  };
  if ("total_parameters" in metadata) metadata["total_parameters"] = totalParameters;
  const index = { metadata, weight_map: weightMap };
  await writeFileAtomic(join(work, INDEX), `${JSON.stringify(index, null, 2)}\n`);
}
