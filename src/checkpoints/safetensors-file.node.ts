import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { TinkerError } from "../errors.js";
import {
  type FloatTensor,
  parseHeader,
  type SafetensorsEntry,
  type SafetensorsHeader,
  toFloat32,
} from "./safetensors.js";

/** An open file, from which tensors are read one at a time. */
export class SafetensorsFile {
  readonly header: SafetensorsHeader;
  readonly #path: string;
  readonly #descriptor: number;

  constructor(path: string) {
    this.#path = path;
    this.#descriptor = openSync(path, "r");
    try {
      const size = fstatSync(this.#descriptor).size;
      this.header = parseHeader(this.#read(0, 8), size, (length) => this.#read(8, length));
    } catch (error) {
      closeSync(this.#descriptor);
      throw new TinkerError(`${path}: ${error instanceof Error ? error.message : String(error)}`, {
        cause: error,
      });
    }
  }

  entry(name: string): SafetensorsEntry {
    const entry = this.header.tensors.get(name);
    if (!entry) throw new Error(`${this.#path} has no tensor ${name}`);
    return entry;
  }

  read(name: string): FloatTensor {
    const entry = this.entry(name);
    return {
      shape: entry.shape,
      data: toFloat32(this.#read(entry.start, entry.end - entry.start), entry.dtype, name),
    };
  }

  /** Reads part of a tensor's bytes, as they are in the file: into new memory, or into that which is given if it suffices. */
  readBytes(name: string, start: number, length: number, into?: Uint8Array): Uint8Array {
    const entry = this.entry(name);
    if (start < 0 || start + length > entry.end - entry.start) {
      throw new Error(
        `tensor ${name} has ${entry.end - entry.start} bytes, asked for ${start}..${start + length}`,
      );
    }
    return this.#read(entry.start + start, length, into);
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  #read(position: number, length: number, into?: Uint8Array): Uint8Array {
    const bytes = into && into.length >= length ? into.subarray(0, length) : new Uint8Array(length);
    let done = 0;
    while (done < length) {
      const count = readSync(
        this.#descriptor,
        bytes,
        done,
        Math.min(length - done, 1 << 30),
        position + done,
      );
      if (count === 0)
        throw new Error(`the file ends at byte ${position + done}, inside its own header or a tensor`);
      done += count;
    }
    return bytes;
  }
}
