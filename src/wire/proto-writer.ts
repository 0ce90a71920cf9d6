import { viewOf, writeInt64s, writeWords } from "./tensors/packed.js";

/** Sizes of nested messages in the order in which they are written. */
export type Sizes = number[];

const LENGTH_DELIMITED = 2;
const encoder = new TextEncoder();

/** Bytes of a non-negative integer below 2^53 as a varint. */
export function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) size++;
  return size;
}

/** Bytes of a length-delimited field below number 16, tag and length included. */
export function fieldSize(payload: number): number {
  return 1 + varintSize(payload) + payload;
}

export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Writes protobuf fields below number 16 into a buffer whose size was worked out before. */
export class ProtoWriter {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(size: number) {
    this.bytes = new Uint8Array(size);
    this.#view = viewOf(this.bytes);
  }

  get isFull(): boolean {
    return this.#at === this.bytes.length;
  }

  varint(value: number): void {
    let rest = value;
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.bytes[this.#at++] = (rest % 128) | 128;
    this.bytes[this.#at++] = rest;
  }

  varintField(field: number, value: number): void {
    this.bytes[this.#at++] = field << 3;
    this.varint(value);
  }

  doubleField(field: number, value: number): void {
    this.bytes[this.#at++] = (field << 3) | 1;
    this.#view.setFloat64(this.#at, value, true);
    this.#at += 8;
  }

  /** Begins a nested message or any other length-delimited field. */
  begin(field: number, size: number): void {
    this.bytes[this.#at++] = (field << 3) | LENGTH_DELIMITED;
    this.varint(size);
  }

  bytesField(field: number, payload: Uint8Array): void {
    this.begin(field, payload.length);
    this.bytes.set(payload, this.#at);
    this.#at += payload.length;
  }

  wordsField(field: number, values: Int32Array | Float32Array): void {
    this.begin(field, values.byteLength);
    writeWords(this.#view, this.#at, values);
    this.#at += values.byteLength;
  }

  int64sField(field: number, values: Int32Array | Float64Array): void {
    this.begin(field, values.length * 8);
    writeInt64s(this.#view, this.#at, values);
    this.#at += values.length * 8;
  }
}
