const ALIGNMENT = 64;

/** Bytes of memory that a block takes, rounded up to the alignment. */
export const alignedBytes = (bytes: number) => Math.max(ALIGNMENT, Math.ceil(bytes / ALIGNMENT) * ALIGNMENT);

interface Hole {
  offset: number;
  bytes: number;
}

/** Hands out byte ranges of one growing memory: a free list of what was given back, then more memory. */
export class Arena {
  readonly #ensure: (bytes: number) => void;
  /** Sorted by offset, never adjacent. */
  readonly #holes: Hole[] = [];
  readonly #sizes = new Map<number, number>();
  #end: number;
  #allocated = 0;

  /** `ensure` makes the memory at least so many bytes long, or throws. The first `reserved` bytes are left alone. */
  constructor(ensure: (bytes: number) => void, reserved = 0) {
    this.#ensure = ensure;
    this.#end = alignedBytes(reserved);
  }

  get allocatedBytes(): number {
    return this.#allocated;
  }

  alloc(byteLength: number): number {
    const bytes = alignedBytes(byteLength);
    let best = -1;
    for (let index = 0; index < this.#holes.length; index++) {
      const hole = this.#holes[index]!;
      if (hole.bytes >= bytes && (best < 0 || hole.bytes < this.#holes[best]!.bytes)) best = index;
    }
    let offset: number;
    if (best >= 0) {
      const hole = this.#holes[best]!;
      offset = hole.offset;
      hole.offset += bytes;
      hole.bytes -= bytes;
      if (hole.bytes === 0) this.#holes.splice(best, 1);
    } else {
      offset = this.#end;
      this.#ensure(offset + bytes);
      this.#end += bytes;
    }
    this.#sizes.set(offset, bytes);
    this.#allocated += bytes;
    return offset;
  }

  free(offset: number): void {
    const bytes = this.#sizes.get(offset);
    if (bytes === undefined) throw new Error(`free of ${offset}, which is not an allocated block`);
    this.#sizes.delete(offset);
    this.#allocated -= bytes;
    let low = 0;
    let high = this.#holes.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#holes[middle]!.offset < offset) low = middle + 1;
      else high = middle;
    }
    this.#holes.splice(low, 0, { offset, bytes });
    this.#join(low);
    this.#join(low - 1);
    const last = this.#holes.at(-1);
    if (last && last.offset + last.bytes === this.#end) {
      this.#end = last.offset;
      this.#holes.pop();
    }
  }

  #join(index: number): void {
    const left = this.#holes[index];
    const right = this.#holes[index + 1];
    if (left && right && left.offset + left.bytes === right.offset) {
      left.bytes += right.bytes;
      this.#holes.splice(index + 1, 1);
    }
  }
}

/** A stack made of arena blocks: once warm, a training step allocates nothing. */
export class ScratchStack {
  readonly #arena: Arena;
  readonly #blockBytes: number;
  readonly #blocks: { offset: number; bytes: number; start: number }[] = [];
  #top = 0;

  constructor(arena: Arena, blockBytes = 4 << 20) {
    this.#arena = arena;
    this.#blockBytes = blockBytes;
  }

  get bytes(): number {
    return this.#blocks.reduce((sum, block) => sum + block.bytes, 0);
  }

  mark(): number {
    return this.#top;
  }

  release(mark: number): void {
    if (mark > this.#top) throw new Error("scratch released out of order");
    this.#top = mark;
    if (mark === 0 && this.#blocks.length > 1) {
      // One block as large as all of them serves the next step without gaps.
      const bytes = this.bytes;
      for (const block of this.#blocks.splice(0)) this.#arena.free(block.offset);
      try {
        this.#push(bytes);
      } catch (error) {
        // Where memory has no such block in one piece, the next step takes several again.
        if (!(error instanceof RangeError)) throw error;
      }
    }
  }

  /** Makes sure that so much can be taken without growing, or throws; only while nothing is taken. */
  reserve(byteLength: number): void {
    if (this.#top > 0) throw new Error("scratch reserved while in use");
    if (this.#blocks.length === 1 && this.#blocks[0]!.bytes >= byteLength) return;
    // Freed first: both together might be more than there is.
    for (const block of this.#blocks.splice(0)) this.#arena.free(block.offset);
    this.#push(Math.max(byteLength, this.#blockBytes));
  }

  take(byteLength: number): number {
    const bytes = alignedBytes(byteLength);
    for (const block of this.#blocks) {
      const at = Math.max(this.#top, block.start);
      if (at + bytes <= block.start + block.bytes) {
        this.#top = at + bytes;
        return block.offset + (at - block.start);
      }
    }
    const block = this.#push(Math.max(bytes, this.#blockBytes, this.bytes >> 1));
    this.#top = block.start + bytes;
    return block.offset;
  }

  #push(bytes: number) {
    const last = this.#blocks.at(-1);
    const block = {
      offset: this.#arena.alloc(bytes),
      bytes: alignedBytes(bytes),
      start: last ? last.start + last.bytes : 0,
    };
    this.#blocks.push(block);
    return block;
  }
}
