import { packWords, viewOf, writeInt64s } from "./tensors/packed.js";
import type { TensorValues } from "./tensors/tensor-values.js";

const LENGTH_DELIMITED = 2;
const encoder = new TextEncoder();

/** Writes the fields of one kind of message. */
export type WriteFields<T> = (writer: ProtoWriter, value: T) => void;

/** Writes fields below number 16. Lists and texts are left out when empty, as proto3 does. */
export class ProtoWriter {
  #bytes = new Uint8Array(0);
  #view = viewOf(this.#bytes);
  #isMeasuring = true;
  /** Sizes of nested messages in the order in which these begin. */
  readonly #sizes: number[] = [];
  /** Keys as bytes: every datum has the same few. */
  readonly #texts = new Map<string, Uint8Array>();
  #nextSize = 0;
  #at = 0;

  /** Runs the same code twice: first to measure, then to write each byte once into a buffer of the exact size. */
  static encode<T>(write: WriteFields<T>, value: T): Uint8Array {
    const writer = new ProtoWriter();
    write(writer, value);
    writer.#bytes = new Uint8Array(writer.#at);
    writer.#view = viewOf(writer.#bytes);
    writer.#isMeasuring = false;
    writer.#at = 0;
    write(writer, value);
    return writer.#bytes;
  }

  /** A nested message, also an empty one. The value is an argument because a closure for each of thousands is slow. */
  message<T>(field: number, write: WriteFields<T>, value: T): void {
    if (!this.#isMeasuring) {
      this.#begin(field, this.#sizes[this.#nextSize++]!);
      write(this, value);
      return;
    }
    const place = this.#sizes.push(0) - 1;
    const start = this.#at;
    write(this, value);
    this.#sizes[place] = this.#at - start;
    this.#begin(field, this.#at - start);
  }

  /** A text or bytes of no length, where being there says something: the member of a oneof. */
  empty(field: number): void {
    this.#begin(field, 0);
  }

  payload(field: number, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#begin(field, bytes.length);
    if (!this.#isMeasuring) this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  text(field: number, text: string): void {
    let bytes = this.#texts.get(text);
    if (bytes === undefined) {
      bytes = encoder.encode(text);
      this.#texts.set(text, bytes);
    }
    this.payload(field, bytes);
  }

  /** Packed 4-byte numbers. */
  words(field: number, values: Int32Array | Float32Array): void {
    if (values.length === 0) return;
    this.#begin(field, values.byteLength);
    if (!this.#isMeasuring) this.#bytes.set(packWords(values), this.#at);
    this.#at += values.byteLength;
  }

  int64s(field: number, values: Int32Array | Float64Array): void {
    if (values.length === 0) return;
    this.#begin(field, values.length * 8);
    if (!this.#isMeasuring) writeInt64s(this.#view, this.#at, values);
    this.#at += values.length * 8;
  }

  /** Numbers in the wire's form of their dtype. */
  tensorValues(field: number, values: TensorValues): void {
    if (values instanceof Float32Array) this.words(field, values);
    else this.int64s(field, values);
  }

  /** Packed non-negative integers below 2^53. */
  varints(field: number, values: readonly number[]): void {
    if (values.length === 0) return;
    this.message(field, writeVarints, values);
  }

  /** A non-negative integer below 2^53, also 0. */
  varint(field: number, value: number): void {
    this.#byte(field << 3);
    this.bareVarint(value);
  }

  double(field: number, value: number): void {
    this.#byte((field << 3) | 1);
    if (!this.#isMeasuring) this.#view.setFloat64(this.#at, value, true);
    this.#at += 8;
  }

  #begin(field: number, size: number): void {
    this.#byte((field << 3) | LENGTH_DELIMITED);
    this.bareVarint(size);
  }

  /** Without the number of a field. */
  bareVarint(value: number): void {
    let rest = value;
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.#byte((rest % 128) | 128);
    this.#byte(rest);
  }

  #byte(value: number): void {
    if (!this.#isMeasuring) this.#bytes[this.#at] = value;
    this.#at++;
  }
}

function writeVarints(writer: ProtoWriter, values: readonly number[]): void {
  for (const value of values) writer.bareVarint(value);
}
