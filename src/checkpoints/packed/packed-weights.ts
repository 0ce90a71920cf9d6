import { TinkerError } from "../../errors.js";
import { elementCount } from "../../wire/tensors/element-count.js";
import { isFloatDtype, type SafetensorsEntry } from "../safetensors.js";
import { fp8 } from "./fp8.js";
import { int4 } from "./int4.js";
import { MXFP4_BLOCK, mxfp4 } from "./mxfp4.js";
import type { RowCodec } from "./row-codec.js";

/** A weight that the files of a base model hold as several packed tensors. */
export interface PackedWeight {
  /** Its name in plain files. */
  readonly name: string;
  /** [..., outputs, inputs]. */
  readonly shape: readonly number[];
  readonly codec: RowCodec;
  /** Names of the tensors that the codec packs, in its order. */
  readonly parts: readonly string[];
  /** Other tensors that describe the packing, which plain files do not have. */
  readonly extras: readonly string[];
  /** Whether plain files have the inputs as rows. */
  readonly isTransposedWhenPlain: boolean;
}

/** The packed weights among a model's tensors, by name; throws for formats that cannot be merged into. */
export function packedWeights(
  config: Readonly<Record<string, unknown>>,
  tensors: ReadonlyMap<string, SafetensorsEntry>,
  folder: string,
): Map<string, PackedWeight> {
  const settings = quantizationOf(config);
  if (settings === undefined) return new Map();
  const { quant_method: method, format } = settings;
  const entry = (name: string, of: string) => {
    const found = tensors.get(name);
    if (found === undefined)
      throw new TinkerError(`${folder} has ${of}, but not ${name}, which belongs to it.`);
    return found;
  };
  let read: (name: string, entry: SafetensorsEntry) => PackedWeight | undefined;
  if (format === "pack-quantized") read = readInt4(groupSizeOf(settings), entry);
  else if (method === "mxfp4") read = readMxfp4(entry);
  else if (method === "fp8") read = readFp8(blockSizeOf(settings), entry);
  else {
    const named = [method, format].filter((value) => typeof value === "string").join(", ") || "unknown";
    throw new TinkerError(
      `${folder} is quantized (${named}); an adapter can be merged into plain weights, FP8 in blocks, INT4 (pack-quantized) and MXFP4.`,
    );
  }
  const found = new Map<string, PackedWeight>();
  for (const [name, value] of tensors) {
    const weight = read(name, value);
    if (weight === undefined) continue;
    checkSizes(weight, tensors, folder);
    found.set(weight.name, weight);
  }
  return found;
}

/** The config of the same model with plain weights. */
export function plainConfig(config: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const plain: Record<string, unknown> = { ...config };
  delete plain["quantization_config"];
  if (isObject(plain["text_config"])) plain["text_config"] = plainConfig(plain["text_config"]);
  return plain;
}

type ReadEntry = (name: string, of: string) => SafetensorsEntry;

function readInt4(groupSize: number, entry: ReadEntry) {
  return (packed: string, { shape }: SafetensorsEntry): PackedWeight | undefined => {
    if (!packed.endsWith(".weight_packed")) return undefined;
    const name = packed.replace(/_packed$/, "");
    const parts = [packed, `${name}_scale`];
    const extras = [`${name}_shape`];
    for (const other of [...parts, ...extras]) entry(other, packed);
    const plain = [shape[0]!, shape[1]! * 8];
    return { name, shape: plain, codec: int4(groupSize), parts, extras, isTransposedWhenPlain: false };
  };
}

function readMxfp4(entry: ReadEntry) {
  return (blocks: string, { shape }: SafetensorsEntry): PackedWeight | undefined => {
    if (!blocks.endsWith("_blocks") || shape.length < 3) return undefined;
    const name = blocks.replace(/_blocks$/, "");
    const parts = [blocks, `${name}_scales`];
    entry(parts[1]!, blocks);
    const plain = [...shape.slice(0, -2), shape.at(-2)! * MXFP4_BLOCK];
    return { name, shape: plain, codec: mxfp4, parts, extras: [], isTransposedWhenPlain: true };
  };
}

function readFp8(block: readonly [number, number], entry: ReadEntry) {
  return (name: string, { dtype, shape }: SafetensorsEntry): PackedWeight | undefined => {
    if (dtype !== "F8_E4M3" || !name.endsWith(".weight")) return undefined;
    const parts = [name, `${name}_scale_inv`];
    const scales = entry(parts[1]!, name);
    if (!isFloatDtype(scales.dtype)) {
      throw new TinkerError(`${parts[1]} must be F32, F16 or BF16, got ${scales.dtype}.`);
    }
    const codec = fp8(block, scales.dtype);
    return { name, shape, codec, parts, extras: [], isTransposedWhenPlain: false };
  };
}

/** Throws if the tensors are not as large as the codec will make them. */
function checkSizes(
  { shape, codec, parts }: PackedWeight,
  tensors: ReadonlyMap<string, SafetensorsEntry>,
  folder: string,
): void {
  const [rows, columns] = shape.slice(-2) as [number, number];
  const matrices = elementCount(shape.slice(0, -2));
  const sizes = codec.sizes(rows, columns);
  const isRight =
    (shape.length === 2 || codec.groupRows === 1) &&
    parts.every((part, i) => {
      const { start, end } = tensors.get(part)!;
      return end - start === matrices * sizes[i]!;
    });
  if (isRight) return;
  const shown = parts.map((part) => `${part} [${tensors.get(part)!.shape}]`).join(" and ");
  throw new TinkerError(`${folder}: the shapes of ${shown} do not belong together.`);
}

function quantizationOf(config: Readonly<Record<string, unknown>>): Record<string, unknown> | undefined {
  for (const part of [config, config["text_config"]]) {
    const settings = isObject(part) ? part["quantization_config"] : undefined;
    if (isObject(settings)) return settings;
  }
  return undefined;
}

const DEFAULT_GROUP_SIZE = 32;

function groupSizeOf(settings: Record<string, unknown>): number {
  const groups = isObject(settings["config_groups"]) ? Object.values(settings["config_groups"]) : [];
  for (const group of groups) {
    const weights = isObject(group) ? group["weights"] : undefined;
    const size = isObject(weights) ? weights["group_size"] : undefined;
    if (Number.isInteger(size) && (size as number) > 0) return size as number;
  }
  return DEFAULT_GROUP_SIZE;
}

const DEFAULT_BLOCK = 128;

function blockSizeOf(settings: Record<string, unknown>): [number, number] {
  const size = settings["weight_block_size"] ?? [DEFAULT_BLOCK, DEFAULT_BLOCK];
  if (Array.isArray(size) && size.length === 2 && size.every((each) => Number.isInteger(each) && each > 0)) {
    return size as [number, number];
  }
  throw new TinkerError(`weight_block_size must be two whole numbers, got ${JSON.stringify(size)}.`);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
