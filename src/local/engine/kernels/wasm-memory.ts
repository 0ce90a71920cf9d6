const PAGE_BYTES = 65_536;
const GROWTH_BYTES = 16 << 20;
/** Smaller maxima are tried where the address space is limited. */
const MAX_PAGES = [65_536, 32_768, 16_384];

/** One shared WebAssembly memory that grows on demand up to the 4 GiB a 32-bit address can name. */
export class WasmMemory {
  readonly memory: WebAssembly.Memory;
  readonly #maximumPages: number;
  /** Covers the whole memory as of the last growth. */
  buffer: ArrayBufferLike;
  /** The kernels' memory as whole numbers. */
  ints: Int32Array;

  constructor() {
    const { memory, maximum } = createMemory();
    this.memory = memory;
    this.#maximumPages = maximum;
    this.buffer = memory.buffer;
    this.ints = new Int32Array(this.buffer);
  }

  /** Makes the memory at least `bytes` long. */
  ensure(bytes: number): void {
    const current = this.buffer.byteLength;
    if (bytes <= current) return;
    const limit = this.#maximumPages * PAGE_BYTES;
    const refuse = () =>
      new RangeError(
        `the engine needs ${mebibytes(bytes)} MiB of memory, but WebAssembly gives at most ${mebibytes(limit)} MiB here`,
      );
    if (bytes > limit) throw refuse();
    const target = Math.min(limit, Math.max(bytes + GROWTH_BYTES, current + Math.ceil(current / 8)));
    try {
      this.memory.grow(Math.ceil((target - current) / PAGE_BYTES));
    } catch {
      throw refuse();
    }
    this.buffer = this.memory.buffer;
    this.ints = new Int32Array(this.buffer);
  }
}

const mebibytes = (bytes: number) => Math.ceil(bytes / 2 ** 20);

function createMemory(): { memory: WebAssembly.Memory; maximum: number } {
  let failure: unknown;
  for (const maximum of MAX_PAGES) {
    try {
      return { memory: new WebAssembly.Memory({ initial: 2, maximum, shared: true }), maximum };
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}
