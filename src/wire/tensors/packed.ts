import { TinkerError } from "../../errors.js";
import type { TensorValues } from "./tensor-values.js";

// Numbers travel as packed little-endian bytes. int64 is read and written as two halves, because a BigInt per element
// costs more than all else together.

const LITTLE_ENDIAN = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;
const TWO_32 = 2 ** 32;

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Writes integers as int64 at `offset`. */
export function writeInt64s(into: DataView, offset: number, values: Int32Array | Float64Array): void {
  if (values instanceof Int32Array) {
    for (let index = 0; index < values.length; index++) {
      const value = values[index]!;
      into.setInt32(offset + index * 8, value, true);
      into.setInt32(offset + index * 8 + 4, value >> 31, true);
    }
    return;
  }
  for (let index = 0; index < values.length; index++) {
    const value = values[index]!;
    const high = Math.floor(value / TWO_32);
    into.setUint32(offset + index * 8, value - high * TWO_32, true);
    into.setInt32(offset + index * 8 + 4, high, true);
  }
}

/** The packed bytes of 4-byte numbers: a view where possible, so do not write to it. */
export function packWords(values: Int32Array | Float32Array): Uint8Array {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  return LITTLE_ENDIAN ? bytes : swapWords(new Uint8Array(bytes));
}

export function packInt64s(values: Int32Array | Float64Array): Uint8Array {
  const bytes = new Uint8Array(values.length * 8);
  writeInt64s(viewOf(bytes), 0, values);
  return bytes;
}

export function packTensorValues(values: TensorValues): Uint8Array {
  return values instanceof Float32Array ? packWords(values) : packInt64s(values);
}

export function unpackFloat32s(bytes: Uint8Array): Float32Array {
  return new Float32Array(copyWords(bytes, "float32"));
}

export function unpackInt32s(bytes: Uint8Array): Int32Array {
  return new Int32Array(copyWords(bytes, "int32"));
}

/** bfloat16 is the upper half of a float32. */
export function unpackBfloat16s(bytes: Uint8Array): Float32Array {
  const bits = new Uint32Array(countOf(bytes, 2, "bfloat16"));
  const view = viewOf(bytes);
  for (let index = 0; index < bits.length; index++) bits[index] = view.getUint16(index * 2, true) << 16;
  return new Float32Array(bits.buffer);
}

/** Int32Array where every value fits, else a Float64Array; a value no number holds exactly is an error. */
export function unpackInt64s(bytes: Uint8Array): Int32Array | Float64Array {
  const count = countOf(bytes, 8, "int64");
  const view = viewOf(bytes);
  const narrow = new Int32Array(count);
  for (let index = 0; index < count; index++) {
    const low = view.getInt32(index * 8, true);
    if (view.getInt32(index * 8 + 4, true) !== low >> 31) return unpackWideInt64s(view, count);
    narrow[index] = low;
  }
  return narrow;
}

function unpackWideInt64s(view: DataView, count: number): Float64Array {
  const wide = new Float64Array(count);
  for (let index = 0; index < count; index++) {
    const value = view.getInt32(index * 8 + 4, true) * TWO_32 + view.getUint32(index * 8, true);
    if (!Number.isSafeInteger(value)) {
      throw new TinkerError(
        `int64 value ${view.getBigInt64(index * 8, true)} at index ${index} is beyond 2^53`,
      );
    }
    wide[index] = value;
  }
  return wide;
}

/** Smaller lists gain nothing, and the bytes before them may be fewer than those that the move overwrites. */
const MIN_BYTES_IN_PLACE = 4096;

/**
 * The numbers of a list as a view of the message that it is in, which must not be read again: where the list does not
 * begin at a multiple of 4, it is moved there, over its own length. New memory costs more than to read the whole answer.
 */
export function float32sInPlace(bytes: Uint8Array): Float32Array {
  if (!LITTLE_ENDIAN || bytes.byteLength < MIN_BYTES_IN_PLACE) return unpackFloat32s(bytes);
  const count = countOf(bytes, 4, "float32");
  const begin = bytes.byteOffset - (bytes.byteOffset % 4);
  if (begin < bytes.byteOffset) new Uint8Array(bytes.buffer, begin, bytes.byteLength).set(bytes);
  return new Float32Array(bytes.buffer as ArrayBuffer, begin, count);
}

function copyWords(bytes: Uint8Array, kind: string): ArrayBuffer {
  countOf(bytes, 4, kind);
  const copy = new Uint8Array(bytes);
  return LITTLE_ENDIAN ? copy.buffer : swapWords(copy).buffer;
}

function swapWords(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  for (let offset = 0; offset < bytes.length; offset += 4) bytes.subarray(offset, offset + 4).reverse();
  return bytes;
}

function countOf(bytes: Uint8Array, width: number, kind: string): number {
  const count = bytes.byteLength / width;
  if (!Number.isInteger(count))
    throw new TinkerError(`${bytes.byteLength} bytes are not a list of ${kind} values`);
  return count;
}
