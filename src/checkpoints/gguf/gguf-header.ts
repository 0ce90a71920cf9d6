import { GGML_TYPES, type GgmlTypeName, storedBytes } from "./ggml-types.js";
import type { RowSource } from "./row-source.js";

/** A value of a GGUF file's metadata; numbers name their type. */
export type GgufValue =
  | string
  | boolean
  | { readonly uint32: number }
  | { readonly float32: number }
  | { readonly strings: readonly string[] }
  | { readonly int32s: readonly number[] }
  | { readonly float32s: readonly number[] };

/** The metadata of a GGUF file by key, in the file's order. */
export type GgufMetadata = Readonly<Record<string, GgufValue>>;

/** A tensor of a GGUF file. */
export interface GgufTensor {
  readonly name: string;
  /** Rows last, as in Hugging Face files; the format has it the other way round. */
  readonly shape: readonly number[];
  readonly type: GgmlTypeName;
  readonly rows: RowSource;
}

/** Tensors begin at multiples of this. */
export const GGUF_ALIGNMENT = 32;

const TYPE_UINT32 = 4;
const TYPE_INT32 = 5;
const TYPE_FLOAT32 = 6;
const TYPE_BOOL = 7;
const TYPE_STRING = 8;
const TYPE_ARRAY = 9;

/** The beginning of a file, and where each tensor's bytes are in it. */
export function encodeGgufHeader(
  metadata: GgufMetadata,
  tensors: readonly GgufTensor[],
): { header: Uint8Array; positions: readonly number[]; totalBytes: number } {
  const bytes = new ByteList();
  bytes.raw(new TextEncoder().encode("GGUF"));
  bytes.uint32(3);
  bytes.uint64(tensors.length);
  bytes.uint64(Object.keys(metadata).length);
  for (const [key, value] of Object.entries(metadata)) {
    bytes.text(key);
    writeValue(bytes, value);
  }
  const offsets: number[] = [];
  let offset = 0;
  for (const { name, shape, type, rows } of tensors) {
    bytes.text(name);
    bytes.uint32(shape.length);
    for (const size of shape.toReversed()) bytes.uint64(size);
    bytes.uint32(GGML_TYPES[type].id);
    bytes.uint64(offset);
    offsets.push(offset);
    offset = aligned(offset + storedBytes(type, rows.rowCount, rows.rowLength));
  }
  const start = aligned(bytes.length);
  const header = new Uint8Array(start);
  header.set(bytes.all());
  return { header, positions: offsets.map((at) => start + at), totalBytes: start + offset };
}

const aligned = (at: number) => Math.ceil(at / GGUF_ALIGNMENT) * GGUF_ALIGNMENT;

function writeValue(bytes: ByteList, value: GgufValue): void {
  if (typeof value === "string") {
    bytes.uint32(TYPE_STRING);
    bytes.text(value);
  } else if (typeof value === "boolean") {
    bytes.uint32(TYPE_BOOL);
    bytes.raw(Uint8Array.of(value ? 1 : 0));
  } else if ("uint32" in value) {
    bytes.uint32(TYPE_UINT32);
    bytes.uint32(value.uint32);
  } else if ("float32" in value) {
    bytes.uint32(TYPE_FLOAT32);
    bytes.raw(new Uint8Array(Float32Array.of(value.float32).buffer));
  } else if ("strings" in value) {
    bytes.arrayOf(TYPE_STRING, value.strings.length);
    for (const text of value.strings) bytes.text(text);
  } else if ("int32s" in value) {
    bytes.arrayOf(TYPE_INT32, value.int32s.length);
    bytes.raw(new Uint8Array(Int32Array.from(value.int32s).buffer));
  } else {
    bytes.arrayOf(TYPE_FLOAT32, value.float32s.length);
    bytes.raw(new Uint8Array(Float32Array.from(value.float32s).buffer));
  }
}

/** Bytes that are added one after the other. */
class ByteList {
  #bytes = new Uint8Array(1 << 16);
  #view = new DataView(this.#bytes.buffer);
  readonly #encoder = new TextEncoder();
  length = 0;

  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  uint32(value: number): void {
    this.#reserve(4);
    this.#view.setUint32(this.length, value, true);
    this.length += 4;
  }

  uint64(value: number): void {
    this.#reserve(8);
    this.#view.setBigUint64(this.length, BigInt(value), true);
    this.length += 8;
  }

  text(text: string): void {
    const bytes = this.#encoder.encode(text);
    this.uint64(bytes.length);
    this.raw(bytes);
  }

  arrayOf(type: number, count: number): void {
    this.uint32(TYPE_ARRAY);
    this.uint32(type);
    this.uint64(count);
  }

  all(): Uint8Array {
    return this.#bytes.subarray(0, this.length);
  }

  #reserve(count: number): void {
    if (this.length + count <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(2 * this.#bytes.length, this.length + count));
    larger.set(this.all());
    this.#bytes = larger;
    this.#view = new DataView(larger.buffer);
  }
}
