import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { checkPlainLora, loraPairs, moduleAlpha, peftNames } from "../../checkpoints/lora.js";
import { ADAPTER_CONFIG, ADAPTER_WEIGHTS, encodeAdapter, readAdapter } from "../../checkpoints/peft.node.js";
import { decodeSafetensors, encodeSafetensors } from "../../checkpoints/safetensors.js";
import { TinkerError } from "../../errors.js";
import { errorCode } from "../../files.node.js";
import {
  type AdapterState,
  EngineInputError,
  LORA_ALPHA,
  type LoraSettings,
  type NamedTensor,
} from "../engine/engine.js";
import { writePrivateSynced } from "./data-folder.js";

const ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"];
const MLP = ["gate_proj", "up_proj", "down_proj"];
const UNEMBED = ["lm_head"];
/** Last parts of the paths of modules that an adapter may change, by the setting that trains them. */
export const TRAINABLE_MODULES: Readonly<Record<"attention" | "mlp" | "unembed", readonly string[]>> = {
  attention: ATTENTION,
  mlp: MLP,
  unembed: UNEMBED,
};
const OPTIMIZER = "optimizer.safetensors";

/** Entries that PEFT writes besides its defaults, for tools that expect them. */
const OTHER_SETTINGS = {
  init_lora_weights: true,
  modules_to_save: null,
  layers_to_transform: null,
  layers_pattern: null,
  rank_pattern: {},
  alpha_pattern: {},
  use_rslora: false,
  use_dora: false,
};

/** Writes an adapter as a PEFT folder, its optimizer state beside it, every file synced to disk. */
export async function writeAdapterFiles(
  folder: string,
  state: AdapterState,
  baseModel: string,
): Promise<void> {
  const { config, weights } = encodeAdapter({
    baseModel,
    rank: state.lora.rank,
    alpha: LORA_ALPHA,
    targetModules: targetModules(state.lora),
    otherSettings: OTHER_SETTINGS,
    tensors: state.tensors,
  });
  await writePrivateSynced(join(folder, ADAPTER_CONFIG), config);
  await writePrivateSynced(join(folder, ADAPTER_WEIGHTS), weights);
  const { optimizer } = state;
  if (optimizer === undefined) return;
  const moments: Record<string, NamedTensor> = {};
  for (const [name, data] of Object.entries(optimizer.first)) moments[`first.${name}`] = flat(data);
  for (const [name, data] of Object.entries(optimizer.second)) moments[`second.${name}`] = flat(data);
  await writePrivateSynced(
    join(folder, OPTIMIZER),
    encodeSafetensors(moments, { metadata: { format: "pt", step: String(optimizer.step) } }),
  );
}

function targetModules(lora: LoraSettings): string[] {
  return [
    ...(lora.trainAttn ? ATTENTION : []),
    ...(lora.trainMlp ? MLP : []),
    ...(lora.trainUnembed ? UNEMBED : []),
  ];
}

function flat(data: Float32Array): NamedTensor {
  return { shape: [data.length], data };
}

/**
 * Reads a PEFT folder, ours or one PEFT itself wrote. A `lora_alpha` other than ours is folded into the B
 * matrices, so that the adapter's output stays the same.
 */
export async function readAdapterFolder(folder: string): Promise<AdapterState> {
  const adapter = await readLora(folder).catch((error: unknown) => {
    throw error instanceof TinkerError ? new EngineInputError(error.message, { cause: error }) : error;
  });
  const optimizer = await readOptimizer(folder);
  return optimizer === undefined ? adapter : { ...adapter, optimizer };
}

async function readLora(folder: string): Promise<AdapterState> {
  const adapter = await readAdapter(folder);
  const { rank } = adapter;
  // The engine has one rank for all modules.
  checkPlainLora(adapter, join(folder, ADAPTER_CONFIG), ["rank_pattern"]);
  const tensors: Record<string, NamedTensor> = {};
  const pairs = loraPairs(Object.keys(adapter.tensors), join(folder, ADAPTER_WEIGHTS));
  for (const [module, { a, b }] of pairs) {
    const names = peftNames(module);
    tensors[names.a] = adapter.tensors[a]!;
    tensors[names.b] = scaled(adapter.tensors[b]!, moduleAlpha(adapter, module, rank) / LORA_ALPHA);
  }
  const trains = (modules: string[]) =>
    [...pairs.keys()].some((path) => modules.includes(path.split(".").at(-1)!));
  const lora: LoraSettings = {
    rank,
    seed: 0,
    trainAttn: trains(ATTENTION),
    trainMlp: trains(MLP),
    trainUnembed: trains(UNEMBED),
  };
  return { lora, tensors };
}

function scaled({ shape, data }: NamedTensor, factor: number): NamedTensor {
  return { shape, data: factor === 1 ? data : data.map((value) => value * factor) };
}

async function readOptimizer(folder: string): Promise<AdapterState["optimizer"]> {
  let bytes: Uint8Array;
  try {
    bytes = await readFile(join(folder, OPTIMIZER));
  } catch (error) {
    if (errorCode(error) === "ENOENT") return undefined;
    throw error;
  }
  const { tensors, metadata } = decodeSafetensors(bytes);
  const first: Record<string, Float32Array> = {};
  const second: Record<string, Float32Array> = {};
  for (const [name, tensor] of Object.entries(tensors)) {
    if (name.startsWith("first.")) first[name.slice("first.".length)] = tensor.data;
    else if (name.startsWith("second.")) second[name.slice("second.".length)] = tensor.data;
  }
  return { step: Number(metadata["step"] ?? 0), first, second };
}
