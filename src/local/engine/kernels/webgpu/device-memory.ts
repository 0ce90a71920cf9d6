import type { F32, Frozen, I32 } from "../kernels.js";

/** Bindings of storage buffers begin at multiples of this. */
export const BINDING_ALIGNMENT = 256;

const [COPY_SRC, COPY_DST, STORAGE] = [0x4, 0x8, 0x80];

/** Memory on the device that is taken and given back as a whole. */
export interface Block {
  readonly id: number;
  readonly buffer: GPUBuffer;
  readonly bytes: number;
}

/** The field that handles of these kernels have in addition. */
export interface OnDevice {
  readonly block: Block;
}

/** A handle with its block. */
export const onDevice = <T extends F32 | I32 | Frozen>(handle: T) => handle as T & OnDevice;

/** The part of a block that spans some buffers in it, as one, and where each of them begins there, in elements. */
export function windowOver<T extends F32 | I32>(...buffers: T[]): { window: T; starts: number[] } {
  const handles = buffers.map((buffer) => onDevice(buffer));
  const [first] = handles;
  if (!first || handles.some(({ block }) => block !== first.block))
    throw new Error("only parts of one block can be bound as one");
  const offset = Math.min(...handles.map((each) => each.offset));
  const end = Math.max(...handles.map((each) => each.offset + 4 * each.length));
  return {
    window: { ...first, offset, length: (end - offset) / 4 },
    starts: handles.map((each) => (each.offset - offset) / 4),
  };
}

/** Blocks within a budget, and a stack of scratch in blocks that stay for the next step. */
export class DeviceMemory {
  readonly #device: GPUDevice;
  readonly #budgetBytes: number;
  /** Sends what is on its way to the device and forgets what holds on to these blocks, so that they can be destroyed. */
  readonly #flush: (blocks: readonly Block[]) => void;
  #nextId = 1;
  #allocatedBytes = 0;
  #scratchBytes = 0;
  readonly #scratch: (Block & { start: number })[] = [];
  #top = 0;
  /** Bytes that can be taken from several blocks together. */
  #reservedBytes = 0;

  constructor(device: GPUDevice, budgetBytes: number, flush: (blocks: readonly Block[]) => void) {
    this.#device = device;
    this.#budgetBytes = budgetBytes;
    this.#flush = flush;
  }

  /** Without scratch. */
  get allocatedBytes(): number {
    return this.#allocatedBytes;
  }

  get reservedBytes(): number {
    return this.#allocatedBytes + this.#scratchBytes;
  }

  get freeBytes(): number {
    return this.#budgetBytes - this.reservedBytes;
  }

  /** A larger one could not be bound as a whole, as most operations bind it. */
  get maxBlockBytes(): number {
    const { maxBufferSize, maxStorageBufferBindingSize } = this.#device.limits;
    return Math.min(maxBufferSize, maxStorageBufferBindingSize);
  }

  /** A block of its own, zero-filled. */
  alloc(byteLength: number): Block {
    checkSize(byteLength, this.maxBlockBytes);
    // Scratch that no step is using is freed first.
    if (aligned(byteLength) > this.freeBytes && this.#top === 0) this.dropScratch();
    const block = this.#create(byteLength);
    this.#allocatedBytes += block.bytes;
    return block;
  }

  free(block: Block): void {
    this.#flush([block]);
    block.buffer.destroy();
    this.#allocatedBytes -= block.bytes;
  }

  mark(): number {
    return this.#top;
  }

  release(mark: number): void {
    if (mark > this.#top) throw new Error("scratch released out of order");
    this.#top = mark;
  }

  /** A piece of a scratch block, not zeroed. */
  take(byteLength: number): { block: Block; offset: number } {
    const bytes = aligned(byteLength);
    for (const block of this.#scratch) {
      const at = Math.max(this.#top, block.start);
      if (at + bytes <= block.start + block.bytes) {
        this.#top = at + bytes;
        return { block, offset: at - block.start };
      }
    }
    const wanted = Math.max(bytes, MIN_SCRATCH_BYTES, Math.min(MAX_GROWTH_BYTES, this.#scratchBytes / 2));
    const { maxBufferSize } = this.#device.limits;
    const block = this.#push(Math.max(bytes, Math.min(wanted, this.freeBytes, maxBufferSize)));
    this.#top = block.start + bytes;
    return { block, offset: 0 };
  }

  /** So much can be taken without growing. */
  has(byteLength: number): boolean {
    return byteLength <= this.#reservedBytes || this.#scratch.some((block) => block.bytes >= byteLength);
  }

  /**
   * Makes room for so much, in pieces of at most `largestBytes`, or throws; only while nothing is taken and the device
   * has done what was asked of it.
   */
  reserve(byteLength: number, largestBytes: number): void {
    const { maxBufferSize } = this.#device.limits;
    // Where no block is that large, there are several; a piece that does not fit into the end of one leaves it empty.
    const used = Math.max(maxBufferSize - largestBytes, maxBufferSize / 2);
    for (let missing = byteLength; missing > 0; missing -= missing > maxBufferSize ? used : missing) {
      this.#push(Math.min(missing, maxBufferSize));
    }
    this.#reservedBytes = byteLength;
  }

  dropScratch(): void {
    if (this.#top > 0) throw new Error("scratch dropped while in use");
    const blocks = this.#scratch.splice(0);
    this.#flush(blocks);
    for (const block of blocks) block.buffer.destroy();
    this.#scratchBytes = 0;
    this.#reservedBytes = 0;
  }

  #push(byteLength: number) {
    const last = this.#scratch.at(-1);
    const block = { ...this.#create(byteLength), start: last ? last.start + last.bytes : 0 };
    this.#scratch.push(block);
    this.#scratchBytes += block.bytes;
    return block;
  }

  #create(byteLength: number): Block {
    const bytes = aligned(byteLength);
    checkSize(bytes, this.#device.limits.maxBufferSize);
    if (bytes > this.freeBytes) {
      throw new RangeError(
        `the GPU has ${Math.floor(Math.max(0, this.freeBytes) / 2 ** 20)} of ${mebibytes(this.#budgetBytes)} MiB left, not ${mebibytes(bytes)}`,
      );
    }
    const buffer = this.#device.createBuffer({ size: bytes, usage: STORAGE | COPY_SRC | COPY_DST });
    return { id: this.#nextId++, buffer, bytes };
  }
}

const MIN_SCRATCH_BYTES = 16 << 20;
const MAX_GROWTH_BYTES = 256 << 20;
const aligned = (bytes: number) =>
  Math.max(BINDING_ALIGNMENT, Math.ceil(bytes / BINDING_ALIGNMENT) * BINDING_ALIGNMENT);
const mebibytes = (bytes: number) => Math.ceil(bytes / 2 ** 20);

function checkSize(bytes: number, maxBytes: number): void {
  if (bytes <= maxBytes) return;
  throw new RangeError(
    `the GPU gives at most ${mebibytes(maxBytes)} MiB in one piece, not ${mebibytes(bytes)}`,
  );
}
