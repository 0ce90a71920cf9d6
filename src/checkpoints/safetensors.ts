import { elementCount } from "../wire/tensors/element-count.js";

/** The dtypes that a safetensors file may hold. */
export type SafetensorsDtype = keyof typeof DTYPE_BYTES;

/** The dtypes that weights are written in. */
export type FloatDtype = "F32" | "F16" | "BF16";

/** Position, dtype and shape of a tensor in its file. */
export interface SafetensorsEntry {
  dtype: SafetensorsDtype;
  shape: number[];
  /** Byte range inside the file. */
  start: number;
  end: number;
}

/** The JSON header of a file; the raw little-endian tensors follow it. */
export interface SafetensorsHeader {
  tensors: Map<string, SafetensorsEntry>;
  metadata: Record<string, string>;
}

/** A tensor of weights, row by row. */
export interface FloatTensor {
  shape: number[];
  data: Float32Array;
}

/** Bytes of one value. */
export const DTYPE_BYTES = {
  F64: 8,
  F32: 4,
  F16: 2,
  BF16: 2,
  F8_E4M3: 1,
  F8_E5M2: 1,
  I64: 8,
  I32: 4,
  I16: 2,
  I8: 1,
  U64: 8,
  U32: 4,
  U16: 2,
  U8: 1,
  BOOL: 1,
} as const;
const MAX_HEADER_BYTES = 100_000_000;

/** Builds a whole file of float tensors, sorted by name; rounded to nearest even if the dtype is narrower. */
export function decodeSafetensors(bytes: Uint8Array): {
  tensors: Record<string, FloatTensor>;
  metadata: Record<string, string>;
} {
  const header = parseHeader(bytes.subarray(0, 8), bytes.byteLength, (length) =>
    bytes.subarray(8, 8 + length),
  );
  const tensors: Record<string, FloatTensor> = Object.create(null) as Record<string, FloatTensor>;
  for (const [name, entry] of header.tensors) {
    tensors[name] = {
      shape: entry.shape,
      data: toFloat32(bytes.subarray(entry.start, entry.end), entry.dtype, name),
    };
  }
  return { tensors, metadata: header.metadata };
}

/** A whole file of float tensors, in the order of their names; rounded to nearest even where the dtype is narrower. */
export function encodeSafetensors(
  tensors: Record<string, { shape: number[]; data: Float32Array }>,
  options: { dtype?: FloatDtype; metadata?: Record<string, string> } = {},
): Uint8Array {
  const { dtype = "F32", metadata = { format: "pt" } } = options;
  const names = Object.keys(tensors).sort();
  for (const name of names) {
    const { shape, data } = tensors[name]!;
    const elements = elementCount(shape);
    if (elements !== data.length) {
      throw new Error(`tensor ${name}: shape [${shape}] needs ${elements} values, got ${data.length}`);
    }
  }
  const { header, dataBytes } = encodeHeader(
    names.map((name) => ({ name, dtype, shape: tensors[name]!.shape })),
    metadata,
  );
  const out = new Uint8Array(header.length + dataBytes);
  out.set(header);
  let at = header.length;
  for (const name of names) {
    const bytes = fromFloat32(tensors[name]!.data, dtype);
    out.set(bytes, at);
    at += bytes.byteLength;
  }
  return out;
}

/** The beginning of a file whose tensors follow in the given order, and the size of the tensors. */
export function encodeHeader(
  tensors: readonly { name: string; dtype: SafetensorsDtype; shape: readonly number[] }[],
  metadata: Record<string, string>,
): { header: Uint8Array; dataBytes: number } {
  const entries: Record<string, unknown> = { __metadata__: metadata };
  let offset = 0;
  for (const { name, dtype, shape } of tensors) {
    const end = offset + elementCount(shape) * DTYPE_BYTES[dtype];
    entries[name] = { dtype, shape, data_offsets: [offset, end] };
    offset = end;
  }
  const json = new TextEncoder().encode(JSON.stringify(entries));
  const headerBytes = Math.ceil(json.length / 8) * 8;
  const header = new Uint8Array(8 + headerBytes).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(headerBytes), true);
  header.set(json, 8);
  return { header, dataBytes: offset };
}

/** Whether weights are written in this dtype. */
export function isFloatDtype(dtype: SafetensorsDtype): dtype is FloatDtype {
  return dtype === "F32" || dtype === "F16" || dtype === "BF16";
}

/** Reads and checks the header of a file: its first 8 bytes, then as many as they say. */
export function parseHeader(
  prefix: Uint8Array,
  fileBytes: number,
  readHeader: (length: number) => Uint8Array,
): SafetensorsHeader {
  if (fileBytes < 8) throw new Error(`a safetensors file has at least 8 bytes, got ${fileBytes}`);
  const declared = new DataView(prefix.buffer, prefix.byteOffset, 8).getBigUint64(0, true);
  if (declared > BigInt(Math.min(MAX_HEADER_BYTES, fileBytes - 8))) {
    throw new Error(`the safetensors header says it has ${declared} bytes, the file has ${fileBytes}`);
  }
  const headerBytes = Number(declared);
  const raw: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(readHeader(headerBytes)));
  if (typeof raw !== "object" || raw === null) throw new Error("the safetensors header is not a JSON object");
  const tensors = new Map<string, SafetensorsEntry>();
  let metadata: Record<string, string> = {};
  for (const [name, value] of Object.entries(raw)) {
    if (name === "__metadata__") metadata = value as Record<string, string>;
    else tensors.set(name, parseEntry(name, value, 8 + headerBytes, fileBytes));
  }
  return { tensors, metadata };
}

function parseEntry(name: string, value: unknown, dataStart: number, fileBytes: number): SafetensorsEntry {
  const { dtype, shape, data_offsets } = (value ?? {}) as Record<string, unknown>;
  if (typeof dtype !== "string" || !(dtype in DTYPE_BYTES)) {
    throw new Error(`tensor ${name}: dtype ${String(dtype)} is not supported`);
  }
  const sizes = wholeNumbers(shape);
  const range = wholeNumbers(data_offsets);
  if (!sizes || !range || range.length !== 2) throw new Error(`tensor ${name}: bad shape or data_offsets`);
  const known = dtype as SafetensorsDtype;
  const [from, to] = range as [number, number];
  const bytes = elementCount(sizes) * DTYPE_BYTES[known];
  if (to - from !== bytes) {
    throw new Error(`tensor ${name}: ${bytes} bytes by its shape, but data_offsets are ${from}..${to}`);
  }
  if (dataStart + to > fileBytes) {
    throw new Error(
      `the file is cut short: tensor ${name} ends at byte ${dataStart + to}, the file has ${fileBytes}`,
    );
  }
  return { dtype: known, shape: sizes, start: dataStart + from, end: dataStart + to };
}

function wholeNumbers(value: unknown): number[] | undefined {
  if (!Array.isArray(value)) return undefined;
  return value.every((item) => Number.isSafeInteger(item) && (item as number) >= 0)
    ? (value as number[])
    : undefined;
}

/** Tensor bytes as float32; throws for dtypes that cannot hold weights. */
export function toFloat32(bytes: Uint8Array, dtype: SafetensorsDtype, name: string): Float32Array {
  // A copy, because a tensor need not start at a multiple of its element size (and slice() of a Buffer does not copy).
  const buffer = new Uint8Array(bytes).buffer;
  switch (dtype) {
    case "F32":
      return new Float32Array(buffer);
    case "F64":
      return new Float32Array(new Float64Array(buffer));
    case "F16":
      return fromFloat16(new Uint16Array(buffer));
    case "BF16": {
      const source = new Uint16Array(buffer);
      const out = new Uint32Array(source.length);
      for (let i = 0; i < source.length; i++) out[i] = source[i]! << 16;
      return new Float32Array(out.buffer);
    }
    case "I64":
      return Float32Array.from(new BigInt64Array(buffer), Number);
    case "I32":
      return new Float32Array(new Int32Array(buffer));
    case "F8_E4M3":
    case "F8_E5M2":
    case "I16":
    case "I8":
    case "U64":
    case "U32":
    case "U16":
    case "U8":
    case "BOOL":
      throw new Error(`tensor ${name}: dtype ${dtype} cannot hold weights`);
    default:
      throw new Error(`tensor ${name}: dtype ${dtype satisfies never}`);
  }
}

/** The bytes of the values in another dtype, rounded to nearest even. */
export function fromFloat32(values: Float32Array, dtype: FloatDtype): Uint8Array {
  switch (dtype) {
    case "F32":
      return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    case "F16":
      return toFloat16(values);
    case "BF16":
      return toBfloat16(values);
    default:
      throw new Error(`dtype ${dtype satisfies never}`);
  }
}

let halfTable: Float32Array | undefined;

function fromFloat16(source: Uint16Array): Float32Array {
  if (!halfTable) {
    halfTable = new Float32Array(1 << 16);
    for (let bits = 0; bits < 1 << 16; bits++) halfTable[bits] = halfToNumber(bits);
  }
  const out = new Float32Array(source.length);
  for (let i = 0; i < source.length; i++) out[i] = halfTable[source[i]!]!;
  return out;
}

function halfToNumber(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Rounds to nearest, ties to even, as IEEE says; values too large become infinite. */
export function toFloat16(source: Float32Array): Uint8Array {
  const input = new Uint32Array(source.buffer, source.byteOffset, source.length);
  const out = new Uint16Array(source.length);
  for (let i = 0; i < source.length; i++) {
    const bits = input[i]!;
    const sign = (bits >>> 16) & 0x8000;
    const exponent = (bits >>> 23) & 0xff;
    const fraction = bits & 0x7fffff;
    if (exponent === 0xff) out[i] = sign | 0x7c00 | (fraction ? 0x200 : 0);
    else if (exponent < 102) out[i] = sign;
    else {
      const subnormal = exponent < 113;
      const shift = subnormal ? 126 - exponent : 13;
      const mantissa = subnormal ? fraction | 0x800000 : fraction;
      let half = (subnormal ? 0 : (exponent - 112) << 10) + (mantissa >>> shift);
      const rest = mantissa & ((1 << shift) - 1);
      const middle = 1 << (shift - 1);
      if (rest > middle || (rest === middle && half & 1)) half += 1;
      out[i] = sign | Math.min(half, 0x7c00);
    }
  }
  return new Uint8Array(out.buffer);
}

/** Rounds to nearest, ties to even; NaN stays NaN. */
export function toBfloat16(source: Float32Array): Uint8Array {
  const input = new Uint32Array(source.buffer, source.byteOffset, source.length);
  const out = new Uint16Array(source.length);
  for (let i = 0; i < source.length; i++) {
    const bits = input[i]!;
    const isNan = (bits & 0x7fffffff) > 0x7f800000;
    out[i] = isNan ? (bits >>> 16) | 0x40 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
  }
  return new Uint8Array(out.buffer);
}

/** The values as bfloat16 would hold them. */
export function roundToBfloat16(values: Float32Array): Float32Array {
  return toFloat32(toBfloat16(values), "BF16", "");
}
