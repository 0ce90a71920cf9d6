import { EngineInputError } from "../engine.js";
import { allocAll, type F32, type Kernels, sliceBuffer } from "../kernels/kernels.js";
import { attentionWidths, type ModelConfig } from "../model/model-config.js";

/** Tokens in a page. */
export const PAGE_SIZE = 16;
/** Cached prefixes alone make the pool grow to this part of its bound: memory that it once had is never given back. */
const CACHED_PART = 1 / 8;
/** Entries that a table of copies has at least, so that those of most steps have one size. */
const MIN_COPIES = 64;

/** A point in the tree of known prefixes; each owner has a root for each version of the weights. */
export type PrefixNode = number | string;

interface Page {
  references: number;
  /** Its key in the tree of prefixes, once full and registered. */
  key: string | undefined;
}

/** Keys and values of all sequences of one model in pages of a few tokens; full pages are shared by equal prefixes. */
export class PagePool {
  readonly #kernels: Kernels;
  readonly #layers: number;
  readonly #width: number;
  readonly maxPages: number;
  readonly #pages: Page[] = [];
  readonly #free: number[] = [];
  readonly #nodes = new Map<string, { node: PrefixNode; page: number }>();
  /** Registered pages that are not in use, the one to be dropped first in front. */
  readonly #idle = new Set<number>();
  #capacity = 0;
  #nextNode = 1;
  #keys: F32[] = [];
  #values: F32[] = [];

  constructor(kernels: Kernels, config: ModelConfig, maxBytes: number) {
    this.#kernels = kernels;
    this.#layers = config.layers;
    this.#width = attentionWidths(config).key;
    const { maxBufferBytes = Number.POSITIVE_INFINITY } = kernels;
    const ofLayer = Math.min(maxBytes / (2 * config.layers), maxBufferBytes);
    this.maxPages = Math.max(1, Math.floor(ofLayer / (4 * PAGE_SIZE * this.#width)));
  }

  keys(layer: number): F32 {
    return this.#keys[layer]!;
  }

  values(layer: number): F32 {
    return this.#values[layer]!;
  }

  /** Pages in use by sequences, cached prefixes not counted. */
  get heldPages(): number {
    return this.#pages.length - this.#free.length - this.#idle.size;
  }

  /** Where prefixes begin. No owner finds the pages of another: what is found, and how fast, would tell of its prompts. */
  root(weightsVersion: number, owner: string): PrefixNode {
    return `${owner}/${weightsVersion}`;
  }

  /** A free page. Callers reserve pages before, so there is one unless memory has run out. */
  take(): number {
    const page =
      this.#free.pop() ??
      this.#fresh(this.maxPages * CACHED_PART) ??
      this.#dropOldest() ??
      this.#fresh(this.maxPages);
    if (page === undefined) {
      throw new EngineInputError(
        `there is no memory left for keys and values: ${this.heldPages * PAGE_SIZE} tokens are being sampled`,
      );
    }
    this.#pages[page] = { references: 1, key: undefined };
    return page;
  }

  hold(page: number): void {
    this.#pages[page]!.references += 1;
    this.#idle.delete(page);
  }

  /** Last page first, so that the beginning of a prefix outlives its end. */
  release(pages: number[]): void {
    for (let i = pages.length - 1; i >= 0; i--) {
      const index = pages[i]!;
      const page = this.#pages[index]!;
      page.references -= 1;
      if (page.references > 0) continue;
      if (page.key === undefined) this.#free.push(index);
      else this.#idle.add(index);
    }
  }

  /** The longest known prefix of `tokens`, in full pages and at most `limit` tokens; its pages are held. */
  find(root: PrefixNode, tokens: ArrayLike<number>, limit: number): { pages: number[]; node: PrefixNode } {
    const pages: number[] = [];
    let node = root;
    while ((pages.length + 1) * PAGE_SIZE <= limit) {
      const found = this.#nodes.get(keyOf(node, tokens, pages.length * PAGE_SIZE));
      if (!found) break;
      this.hold(found.page);
      pages.push(found.page);
      node = found.node;
    }
    return { pages, node };
  }

  /** Makes a full page findable; returns the node behind it. */
  register(parent: PrefixNode, tokens: ArrayLike<number>, start: number, page: number): PrefixNode {
    const key = keyOf(parent, tokens, start);
    const known = this.#nodes.get(key);
    if (known) return known.node;
    const node = this.#nextNode++;
    this.#nodes.set(key, { node, page });
    this.#pages[page]!.key = key;
    return node;
  }

  /** Copies pages to others, all at once: of several copies to one page the last counts. */
  copyPages(copies: readonly { from: number; to: number }[]): void {
    const sources = new Map(copies.map(({ from, to }) => [to, from]));
    if (sources.size === 0) return;
    const kernels = this.#kernels;
    if (!kernels.copyPages) {
      for (const [to, from] of sources) this.#copyPage(from, to);
      return;
    }
    const mark = kernels.mark();
    const room = Math.max(MIN_COPIES, 2 ** Math.ceil(Math.log2(sources.size)));
    const table = new Int32Array(2 * room);
    table.set([...sources].flatMap(([to, from]) => [from, to]));
    const pairs = kernels.scratchInts(table.length);
    kernels.uploadInts(pairs, table);
    const [count, pageLength] = [sources.size, PAGE_SIZE * this.#width];
    this.#keys.forEach((keyPages, layer) => {
      kernels.copyPages!({ keyPages, valuePages: this.#values[layer]!, pairs, count, pageLength });
    });
    kernels.release(mark);
  }

  #copyPage(from: number, to: number): void {
    const length = PAGE_SIZE * this.#width;
    for (const buffers of [this.#keys, this.#values]) {
      for (const buffer of buffers) {
        this.#kernels.copy(
          sliceBuffer(buffer, to * length, length),
          sliceBuffer(buffer, from * length, length),
        );
      }
    }
  }

  close(): void {
    for (const buffer of [...this.#keys, ...this.#values]) this.#kernels.free(buffer);
    this.#keys = [];
    this.#values = [];
  }

  /** A page that was never used; the pool grows for it while it is smaller than `growBelow` pages. */
  #fresh(growBelow: number): number | undefined {
    if (this.#pages.length === this.#capacity && (this.#capacity >= growBelow || !this.#grow()))
      return undefined;
    this.#pages.push({ references: 0, key: undefined });
    return this.#pages.length - 1;
  }

  /** False where there is no memory to grow into; then everything is as before. */
  #grow(): boolean {
    const capacity = Math.min(this.maxPages, Math.max(64, 2 * this.#capacity));
    const old = [...this.#keys, ...this.#values];
    let larger: F32[];
    try {
      larger = allocAll(this.#kernels, capacity * PAGE_SIZE * this.#width, 2 * this.#layers);
    } catch (error) {
      if (error instanceof RangeError) return false;
      throw error;
    }
    old.forEach((smaller, index) => {
      this.#kernels.copy(sliceBuffer(larger[index]!, 0, smaller.length), smaller);
      this.#kernels.free(smaller);
    });
    this.#keys = larger.slice(0, this.#layers);
    this.#values = larger.slice(this.#layers);
    this.#capacity = capacity;
    return true;
  }

  #dropOldest(): number | undefined {
    for (const page of this.#idle) {
      this.#idle.delete(page);
      this.#nodes.delete(this.#pages[page]!.key!);
      return page;
    }
    return undefined;
  }
}

function keyOf(parent: PrefixNode, tokens: ArrayLike<number>, start: number): string {
  let key = `${parent}`;
  for (let i = start; i < start + PAGE_SIZE; i++) key += `,${tokens[i]}`;
  return key;
}
