import { describe, expect, it } from "vitest";
import { createReferenceKernels } from "../../../../test/engine/reference-kernels.js";
import { parseModelConfig } from "../model/model-config.js";
import { PAGE_SIZE, PagePool, type PrefixNode } from "./page-pool.js";

const config = parseModelConfig(
  {
    model_type: "llama",
    hidden_size: 8,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    intermediate_size: 8,
    vocab_size: 10,
  },
  "x",
);
const pageBytes = 2 * 4 * PAGE_SIZE * 8;
const tokens = (seed: number, pages: number) =>
  Array.from({ length: pages * PAGE_SIZE }, (_, i) => (i * seed) % 7);

function store(pool: PagePool, sequence: number[], root: PrefixNode): number[] {
  let node: PrefixNode = root;
  return Array.from({ length: sequence.length / PAGE_SIZE }, (_, index) => {
    const page = pool.take();
    node = pool.register(node, sequence, index * PAGE_SIZE, page);
    return page;
  });
}

describe("pages of keys and values", () => {
  it("finds the longest known prefix, under the same weights and of the same owner only", () => {
    const pool = new PagePool(createReferenceKernels(), config, 100 * pageBytes);
    const sequence = tokens(3, 4);
    const pages = store(pool, sequence, pool.root(1, "one"));
    pool.release(pages);
    expect(pool.heldPages).toBe(0);
    const other = [...sequence.slice(0, 2 * PAGE_SIZE), ...tokens(5, 2)];
    expect(pool.find(pool.root(1, "one"), other, other.length).pages).toEqual(pages.slice(0, 2));
    expect(pool.find(pool.root(1, "one"), sequence, 3 * PAGE_SIZE - 1).pages).toEqual(pages.slice(0, 2));
    expect(pool.find(pool.root(2, "one"), sequence, sequence.length).pages).toEqual([]);
    expect(pool.find(pool.root(1, "other"), sequence, sequence.length).pages).toEqual([]);
    expect(pool.heldPages).toBe(2);
  });

  it("drops the longest unused pages first, the end of a prefix before its beginning", () => {
    const pool = new PagePool(createReferenceKernels(), config, 6 * pageBytes);
    const [first, second] = [tokens(3, 3), tokens(5, 3)];
    pool.release(store(pool, first, pool.root(1, "one")));
    pool.release(store(pool, second, pool.root(1, "one")));
    pool.take();
    expect(pool.find(pool.root(1, "one"), first, first.length).pages).toHaveLength(2);
    expect(pool.find(pool.root(1, "one"), second, second.length).pages).toHaveLength(3);
    expect(() => pool.take()).toThrow("no memory left for keys and values");
  });

  it("has no more pages than the largest buffer holds of one layer", () => {
    const maxBufferBytes = (3.5 * pageBytes) / (2 * config.layers);
    const kernels = Object.assign(createReferenceKernels(), { maxBufferBytes });
    expect(new PagePool(kernels, config, 100 * pageBytes).maxPages).toBe(3);
    expect(new PagePool(kernels, config, 2 * pageBytes).maxPages).toBe(2);
  });

  it("does not grow for cached prefixes alone, but for sequences that are held", () => {
    const kernels = createReferenceKernels();
    const pool = new PagePool(kernels, config, 4096 * pageBytes);
    for (let round = 0; round < 100; round++)
      pool.release(
        store(
          pool,
          tokens(round + 1, 20).map((token) => token + 10 * round),
          pool.root(round, "one"),
        ),
      );
    expect(kernels.allocatedBytes).toBe(512 * pageBytes);
    const last = tokens(100, 20).map((token) => token + 990);
    expect(pool.find(pool.root(99, "one"), last, last.length).pages).toHaveLength(20);
    for (let page = 0; page < 1000; page++) pool.take();
    expect(kernels.allocatedBytes).toBe(1024 * pageBytes);
  });

  it("keeps its content when it grows", () => {
    const kernels = createReferenceKernels();
    const pool = new PagePool(kernels, config, 200 * pageBytes);
    const page = pool.take();
    kernels.view(pool.keys(0)).fill(7, page * PAGE_SIZE * 8, (page + 1) * PAGE_SIZE * 8);
    for (let i = 0; i < 100; i++) pool.take();
    const view = kernels.view(pool.keys(0)).subarray(page * PAGE_SIZE * 8, (page + 1) * PAGE_SIZE * 8);
    expect(view.every((value) => value === 7)).toBe(true);
    const before = kernels.allocatedBytes;
    pool.close();
    expect(kernels.allocatedBytes).toBe(before - 2 * 4 * PAGE_SIZE * 8 * 128);
  });
});
