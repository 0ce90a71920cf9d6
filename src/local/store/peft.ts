import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { decodeSafetensors, encodeSafetensors } from "../../checkpoints/safetensors.js";
import { errorCode } from "../../files.node.js";
import { type AdapterState, type LoraSettings, loraAlpha, type NamedTensor } from "../engine/engine.js";
import { EngineInputError } from "../engine/errors.js";
import { writePrivateSynced } from "./data-folder.js";

const ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"];
const MLP = ["gate_proj", "up_proj", "down_proj"];
const UNEMBED = ["lm_head"];

/** Writes an adapter as a PEFT folder, its optimizer state beside it, every file synced to disk. */
export async function writeAdapterFiles(
  folder: string,
  state: AdapterState,
  baseModel: string,
): Promise<void> {
  const config = {
    peft_type: "LORA",
    task_type: "CAUSAL_LM",
    base_model_name_or_path: baseModel,
    r: state.lora.rank,
    lora_alpha: loraAlpha,
    lora_dropout: 0,
    bias: "none",
    fan_in_fan_out: false,
    inference_mode: true,
    init_lora_weights: true,
    modules_to_save: null,
    layers_to_transform: null,
    layers_pattern: null,
    rank_pattern: {},
    alpha_pattern: {},
    use_rslora: false,
    use_dora: false,
    target_modules: targetModules(state.lora),
  };
  await writePrivateSynced(join(folder, "adapter_config.json"), `${JSON.stringify(config, null, 2)}\n`);
  await writePrivateSynced(join(folder, "adapter_model.safetensors"), encodeSafetensors(state.tensors));
  const { optimizer } = state;
  if (optimizer === undefined) return;
  const moments: Record<string, NamedTensor> = {};
  for (const [name, data] of Object.entries(optimizer.first)) moments[`first.${name}`] = flat(data);
  for (const [name, data] of Object.entries(optimizer.second)) moments[`second.${name}`] = flat(data);
  await writePrivateSynced(
    join(folder, "optimizer.safetensors"),
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

const nothing = z.union([
  z.null(),
  z.literal(false),
  z.literal("none"),
  z.array(z.never()),
  z.strictObject({}),
]);

/** What changes an adapter's output in ways that A and B alone do not tell; only "not used" is understood. */
const UNSUPPORTED = [
  "use_dora",
  "rank_pattern",
  "alpha_pattern",
  "bias",
  "lora_bias",
  "fan_in_fan_out",
  "modules_to_save",
  "layer_replication",
  "trainable_token_indices",
  "target_parameters",
  "use_qalora",
  "use_bdlora",
] as const;

const configSchema = z.looseObject({
  peft_type: z.literal("LORA").optional(),
  r: z.number().int().positive(),
  lora_alpha: z.number(),
  use_rslora: z.boolean().nullish(),
});

/**
 * Reads a PEFT folder, ours or one PEFT itself wrote. A `lora_alpha` other than ours is folded into the B
 * matrices, so that the adapter's output stays the same.
 */
export async function readAdapterFolder(folder: string): Promise<AdapterState> {
  const config = await readAdapterConfig(join(folder, "adapter_config.json"));
  const { tensors } = decodeSafetensors(await readBytes(join(folder, "adapter_model.safetensors")));
  for (const name of Object.keys(tensors)) {
    // PEFT puts a copy of the base model's own head beside an adapter of it.
    if (name.endsWith(".base_layer.weight")) delete tensors[name];
  }
  const alpha = config.use_rslora === true ? config.lora_alpha * Math.sqrt(config.r) : config.lora_alpha;
  if (alpha !== loraAlpha) scaleB(tensors, alpha / loraAlpha);
  const names = Object.keys(tensors);
  const trains = (modules: string[]) =>
    names.some((name) => modules.some((module) => name.includes(`.${module}.`)));
  const lora: LoraSettings = {
    rank: config.r,
    seed: 0,
    trainAttn: trains(ATTENTION),
    trainMlp: trains(MLP),
    trainUnembed: trains(UNEMBED),
  };
  const optimizer = await readOptimizer(folder);
  return optimizer === undefined ? { lora, tensors } : { lora, tensors, optimizer };
}

async function readAdapterConfig(path: string): Promise<z.infer<typeof configSchema>> {
  const text = await readFile(path, "utf8");
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new EngineInputError(`${path} is not JSON.`);
  }
  const parsed = configSchema.safeParse(json);
  if (!parsed.success) throw new EngineInputError(`${path}: ${z.prettifyError(parsed.error)}`);
  for (const key of UNSUPPORTED) {
    const value = parsed.data[key];
    if (value === undefined || nothing.safeParse(value).success) continue;
    throw new EngineInputError(`${path}: adapters with ${key} (${JSON.stringify(value)}) are not supported.`);
  }
  return parsed.data;
}

/** A plain array: a Buffer's `slice` does not copy, which decoders of typed arrays rely on. */
async function readBytes(path: string): Promise<Uint8Array> {
  return new Uint8Array(await readFile(path));
}

function scaleB(tensors: Record<string, NamedTensor>, factor: number): void {
  for (const [name, tensor] of Object.entries(tensors)) {
    if (!name.endsWith("lora_B.weight")) continue;
    for (let index = 0; index < tensor.data.length; index += 1) tensor.data[index]! *= factor;
  }
}

async function readOptimizer(folder: string): Promise<AdapterState["optimizer"]> {
  let bytes: Uint8Array;
  try {
    bytes = await readBytes(join(folder, "optimizer.safetensors"));
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
