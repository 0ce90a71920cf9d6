import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { TinkerError } from "../errors.js";
import { errorCode, writeFileAtomic } from "../files.node.js";
import type { AdapterSettings } from "./lora.js";
import { decodeSafetensors, encodeSafetensors, type FloatDtype, type FloatTensor } from "./safetensors.js";

/** A PEFT LoRA adapter in memory. */
export interface Adapter extends AdapterSettings {
  /** Tensors by their PEFT names: `base_model.model.<module>.lora_A.weight` and `lora_B`. */
  tensors: Record<string, FloatTensor>;
}

/** The two files of a PEFT folder. */
export const ADAPTER_CONFIG = "adapter_config.json";
export const ADAPTER_WEIGHTS = "adapter_model.safetensors";

const DEFAULT_SETTINGS = {
  task_type: "CAUSAL_LM",
  lora_dropout: 0,
  bias: "none",
  fan_in_fan_out: false,
  inference_mode: true,
};

/** Reads a PEFT folder; weights of any float dtype become float32. */
export async function readAdapter(folder: string): Promise<Adapter> {
  const settings = await readAdapterSettings(folder);
  const bytes = await readFile(join(folder, ADAPTER_WEIGHTS)).catch((error: unknown) => {
    throw notAnAdapter(folder, ADAPTER_WEIGHTS, error);
  });
  return { ...settings, tensors: { ...decodeSafetensors(bytes).tensors } };
}

/** Writes a PEFT folder, each file completely or not at all; other files of the folder stay. */
export async function writeAdapter(
  folder: string,
  adapter: Adapter,
  options: { dtype?: FloatDtype | undefined } = {},
): Promise<void> {
  const { config, weights } = encodeAdapter(adapter, options.dtype);
  await mkdir(folder, { recursive: true });
  await writeFileAtomic(join(folder, ADAPTER_WEIGHTS), weights);
  await writeFileAtomic(join(folder, ADAPTER_CONFIG), config);
}

/** The contents of the two files of a PEFT folder. */
export function encodeAdapter(
  { baseModel, rank, alpha, targetModules, otherSettings, tensors }: Adapter,
  dtype: FloatDtype = "F32",
): { config: string; weights: Uint8Array } {
  const config = {
    ...DEFAULT_SETTINGS,
    ...otherSettings,
    peft_type: "LORA",
    base_model_name_or_path: baseModel,
    r: rank,
    lora_alpha: alpha,
    target_modules: targetModules,
  };
  return {
    config: `${JSON.stringify(config, null, 2)}\n`,
    weights: encodeSafetensors(tensors, { dtype }),
  };
}

/** Reads only the `adapter_config.json` of an adapter. */
export async function readAdapterSettings(folder: string): Promise<AdapterSettings> {
  const file = join(folder, ADAPTER_CONFIG);
  const text = await readFile(file, "utf8").catch((error: unknown) => {
    throw notAnAdapter(folder, ADAPTER_CONFIG, error);
  });
  const {
    base_model_name_or_path: baseModel,
    r: rank,
    lora_alpha: alpha,
    target_modules: targetModules,
    peft_type: kind,
    ...otherSettings
  } = parseObject(text, file);
  const wrong = (field: string, expected: string, got: unknown) =>
    new TinkerError(`${file}: ${field} must be ${expected}, got ${JSON.stringify(got)}.`);
  if (kind !== "LORA") throw wrong("peft_type", '"LORA"', kind);
  if (typeof rank !== "number" || !Number.isInteger(rank) || rank < 1)
    throw wrong("r", "a positive integer", rank);
  if (typeof alpha !== "number" || !Number.isFinite(alpha)) throw wrong("lora_alpha", "a number", alpha);
  if (!isModuleList(targetModules))
    throw wrong("target_modules", "a list of names or a pattern", targetModules);
  return {
    baseModel: typeof baseModel === "string" ? baseModel : null,
    rank,
    alpha,
    targetModules,
    otherSettings,
  };
}

/** Writes the base model's name into a config without one: PEFT cannot load an adapter without it. */
export async function nameBaseModel(folder: string, baseModel: string): Promise<void> {
  const file = join(folder, ADAPTER_CONFIG);
  const config = parseObject(await readFile(file, "utf8"), file);
  if (typeof config["base_model_name_or_path"] === "string") return;
  const named = { ...config, base_model_name_or_path: baseModel };
  await writeFileAtomic(file, `${JSON.stringify(named, null, 2)}\n`);
}

/** Reads the text of a file that must hold a JSON object. */
export function parseObject(text: string, file: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new TinkerError(`${file} is not JSON.`, { cause: error });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TinkerError(`${file} must hold a JSON object.`);
  }
  return value as Record<string, unknown>;
}

function isModuleList(value: unknown): value is string[] | string {
  return (
    typeof value === "string" || (Array.isArray(value) && value.every((item) => typeof item === "string"))
  );
}

/** Makes the error for a file of an adapter that cannot be read. */
export function notAnAdapter(folder: string, file: string, error: unknown): unknown {
  // ENOTDIR: the path is a file.
  if (!["ENOENT", "ENOTDIR"].includes(errorCode(error) ?? "")) return error;
  return new TinkerError(`${folder} is not a PEFT adapter: it has no ${file}.`, { cause: error });
}
