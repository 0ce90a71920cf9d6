import { afterAll, describe, expect, it } from "vitest";
import {
  type Attention,
  type AttentionBackward,
  type AttentionPaged,
  type F32,
  type Kernels,
  type RowSpan,
  sliceBuffer,
} from "../../../src/local/engine/kernels/kernels.js";
import {
  firstBitDifference,
  put,
  randomFloats,
  relativeError,
} from "../../../src/local/engine/kernels/test-support.js";
import { attention } from "../../../src/local/engine/kernels/webgpu/attention.js";
import { attentionBackward } from "../../../src/local/engine/kernels/webgpu/attention-backward.js";
import { tilesFor } from "../../../src/local/engine/kernels/webgpu/attention-tiles.js";
import { attentionPaged } from "../../../src/local/engine/kernels/webgpu/paged-attention.js";
import { partsFor } from "../../../src/local/engine/kernels/webgpu/paged-shaders.js";
import type { GpuContext } from "../../../src/local/engine/kernels/webgpu/webgpu-kernels.js";
import { compare, ints, openKernels } from "../gpus.js";

const kernels = await openKernels();
const context = kernels as Kernels & GpuContext;
afterAll(() => kernels.close());

interface Case {
  /** Of the sequences. */
  lengths: number[];
  heads: number;
  kvHeads: number;
  headDim: number;
  /** Columns that rows have besides. */
  gap?: number;
  /** Of the largest scores, about. */
  size?: number;
}

const PAGE_SIZE = 16;
const [HEADS_OF_6, HEADS_OF_16, HEADS_OF_80]: [Case, Case, Case] = [
  { lengths: [17, 1, 33], heads: 2, kvHeads: 2, headDim: 6, gap: 3 },
  { lengths: [70, 2, 33], heads: 8, kvHeads: 4, headDim: 16, gap: 4 },
  { lengths: [33, 40], heads: 2, kvHeads: 2, headDim: 80, gap: 8 },
];
const CASES: Case[] = [
  { lengths: [2, 0, 15, 0], heads: 2, kvHeads: 1, headDim: 6 },
  HEADS_OF_6,
  { lengths: [16, 64, 1], heads: 4, kvHeads: 1, headDim: 16 },
  HEADS_OF_16,
  HEADS_OF_80,
];
const title = ({ lengths, heads, kvHeads, headDim, gap }: Case) =>
  `${lengths.join(" + ")} rows, ${heads} heads over ${kvHeads} of ${headDim}${gap ? `, ${gap} columns between` : ""}`;

/** Buffers of a case, on any kernels; what is to be overwritten holds something. */
function operationOf(on: Kernels, { lengths, heads, kvHeads, headDim, gap = 0, size = 1 }: Case) {
  const offsets = [0];
  for (const length of lengths) offsets.push(offsets.at(-1)! + length);
  const rows = offsets.at(-1)!;
  const wide = (columns: number, seed: number, factor = 1) => {
    const stride = columns + gap;
    return {
      data: put(
        on,
        randomFloats(rows * stride, seed).map((value) => value * factor),
      ),
      stride,
    };
  };
  const [q, kv] = [heads * headDim, kvHeads * headDim];
  return {
    out: put(on, randomFloats(rows * q, 8)),
    logSumExp: put(on, randomFloats(rows * heads, 9)),
    query: wide(q, 1, size),
    key: wide(kv, 2),
    value: wide(kv, 3),
    offsets: ints(on, offsets),
    shape: { heads, kvHeads, headDim, scale: 1 / Math.sqrt(headDim) },
    dquery: wide(q, 5),
    dkey: wide(kv, 6),
    dvalue: wide(kv, 7),
    dout: put(on, randomFloats(rows * q, 4)),
  } satisfies AttentionBackward;
}

const forwardResults = ({ out, logSumExp }: Attention) => [out, logSumExp];
const backwardResults = ({ dquery, dkey, dvalue }: AttentionBackward) => [
  dquery.data,
  dkey.data,
  dvalue.data,
];

function forward(on: Kernels, shape: Case): F32[] {
  const operation = operationOf(on, shape);
  on.attention(operation);
  return forwardResults(operation);
}

function backward(on: Kernels, shape: Case): F32[] {
  const operation = operationOf(on, shape);
  on.attention(operation);
  on.attentionBackward(operation);
  return backwardResults(operation);
}

/**
 * The rows of a case with their keys and values in pages, whose order is no order: of each sequence only the last
 * rows, from `from` on, as if the others had been computed before.
 */
function paged(
  on: Kernels,
  shape: Case,
  from: (length: number) => number,
  run = (operation: AttentionPaged) => on.attentionPaged(operation),
): F32[] {
  const { heads, kvHeads, headDim, gap = 0, size = 1 } = shape;
  const width = kvHeads * headDim;
  const lengths: number[] = [];
  const tables: number[][] = [];
  const spans: RowSpan[] = [];
  let pages = 0;
  for (const length of shape.lengths) {
    const count = Math.ceil(length / PAGE_SIZE);
    const table = Array.from({ length: count }, (_, index) => pages + ((index * 3 + 1) % count));
    pages += count;
    if (count % 3 === 0) table.reverse();
    spans.push({ start: lengths.length, rows: length - from(length) });
    for (let row = from(length); row < length; row++) {
      lengths.push(row + 1);
      tables.push(table);
    }
  }
  const rows = lengths.length;
  const pagesPerRow = Math.max(...tables.map((table) => table.length)) + 1;
  const stride = heads * headDim + gap;
  const out = put(on, randomFloats(rows * heads * headDim, 8));
  const operation = {
    out,
    query: {
      data: put(
        on,
        randomFloats(rows * stride, 1).map((value) => value * size),
      ),
      stride,
    },
    keyPages: put(on, randomFloats(pages * PAGE_SIZE * width, 2)),
    valuePages: put(on, randomFloats(pages * PAGE_SIZE * width, 3)),
    pageTables: ints(
      on,
      tables.flatMap((table) => Array.from({ length: pagesPerRow }, (_, page) => table[page] ?? 0)),
    ),
    lengths: ints(on, lengths),
    rows,
    pagesPerRow,
    pageSize: PAGE_SIZE,
    shape: { heads, kvHeads, headDim, scale: 1 / Math.sqrt(headDim) },
    spans,
  };
  run(operation);
  return [out];
}

async function expectSameBits(first: F32[], second: F32[]): Promise<void> {
  for (const [index, buffer] of first.entries()) {
    const [a, b] = [await kernels.download(buffer), await kernels.download(second[index]!)];
    expect(firstBitDifference(a, b)).toBeNull();
  }
}

/** `sum(out * cotangent)` in float64. */
function lossOf(
  { lengths, heads, kvHeads, headDim }: Case,
  { query, key, value, cotangent }: Record<"query" | "key" | "value" | "cotangent", Float64Array>,
): number {
  const scale = 1 / Math.sqrt(headDim);
  let loss = 0;
  let start = 0;
  for (const length of lengths) {
    for (let row = start; row < start + length; row++) {
      for (let head = 0; head < heads; head++) {
        const at = (row * heads + head) * headDim;
        const keyAt = (index: number) => (index * kvHeads + Math.floor((head * kvHeads) / heads)) * headDim;
        const [scores, gains]: [number[], number[]] = [[], []];
        for (let other = start; other <= row; other++) {
          let [score, gain] = [0, 0];
          for (let i = 0; i < headDim; i++) {
            score += query[at + i]! * key[keyAt(other) + i]!;
            gain += cotangent[at + i]! * value[keyAt(other) + i]!;
          }
          scores.push(score * scale);
          gains.push(gain);
        }
        const largest = Math.max(...scores);
        const weights = scores.map((score) => Math.exp(score - largest));
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        loss += weights.reduce((sum, weight, index) => sum + weight * gains[index]!, 0) / total;
      }
    }
    start += length;
  }
  return loss;
}

describe("attention", () => {
  it.each(CASES.map((shape) => [title(shape), shape] as const))("%s", async (_, shape) => {
    await compare(kernels, 5e-6, (on) => forward(on, shape));
    await compare(kernels, 2e-5, (on) => backward(on, shape));
  });

  it("stays finite where scores are in the thousands", async () => {
    const shape = { ...HEADS_OF_16, size: 3000 };
    const operation = operationOf(kernels, shape);
    kernels.attention(operation);
    const logSumExp = await kernels.download(operation.logSumExp);
    expect(Math.max(...logSumExp)).toBeGreaterThan(1000);
    expect(Math.min(...logSumExp)).toBeLessThan(-1000);
    await compare(kernels, 1e-3, (on) => forward(on, shape));
    await compare(kernels, 5e-3, (on) => backward(on, shape));
  });

  it("gives the same bits twice", async () => {
    await expectSameBits(forward(kernels, HEADS_OF_16), forward(kernels, HEADS_OF_16));
    await expectSameBits(backward(kernels, HEADS_OF_16), backward(kernels, HEADS_OF_16));
  });

  it("has gradients that agree with differences of a loss in float64", async () => {
    const shape: Case = { lengths: [5, 12], heads: 4, kvHeads: 2, headDim: 6 };
    const operation = operationOf(kernels, shape);
    kernels.attention(operation);
    kernels.attentionBackward(operation);
    const read = async (buffer: F32) => Float64Array.from(await kernels.download(buffer));
    const values = {
      query: await read(operation.query.data),
      key: await read(operation.key.data),
      value: await read(operation.value.data),
      cotangent: await read(operation.dout),
    };
    for (const [name, gradient] of [
      ["query", operation.dquery],
      ["key", operation.dkey],
      ["value", operation.dvalue],
    ] as const) {
      const actual = await kernels.download(gradient.data);
      const inputs = values[name];
      for (let index = 0; index < inputs.length; index += 7) {
        const [kept, step] = [inputs[index]!, 1e-4];
        inputs[index] = kept + step;
        const above = lossOf(shape, values);
        inputs[index] = kept - step;
        const below = lossOf(shape, values);
        inputs[index] = kept;
        expect(Math.abs(actual[index]! - (above - below) / (2 * step)), `${name} ${index}`).toBeLessThan(
          2e-6,
        );
      }
    }
  });

  it("computes the same with other tiles", async () => {
    const shape: Case = { lengths: [40, 19], heads: 2, kvHeads: 1, headDim: 20 };
    const { device, info } = context.gpu;
    const tiles = tilesFor(shape.headDim, device);
    expect(tiles.length).toBeGreaterThan(0);
    // Software compiles each of them for ten seconds and more.
    const small = { across: 4, down: 2, rows: 4, depth: 2, staged: 8, isAhead: true };
    for (const tile of info.isSoftware ? [small] : tiles) {
      await compare(kernels, 2e-5, (on) => {
        const operation = operationOf(on, shape);
        if (on === kernels) {
          attention(context, operation, tile);
          attentionBackward(context, operation, tile);
        } else {
          on.attention(operation);
          on.attentionBackward(operation);
        }
        return [...forwardResults(operation), ...backwardResults(operation)];
      });
    }
  });
});

describe("attentionPaged", () => {
  it.each([
    ["the last row of each sequence", HEADS_OF_16, (length: number) => length - 1],
    ["all rows", HEADS_OF_6, () => 0],
    [
      "the rows of prompts from the middle on",
      { ...HEADS_OF_16, lengths: [70, 9, 75] },
      (length: number) => length >> 1,
    ],
    [
      "heads of two values",
      { lengths: [1, 40], heads: 1, kvHeads: 1, headDim: 2 },
      (length: number) => length - 1,
    ],
    ["heads of 80 values", HEADS_OF_80, (length: number) => length - 5],
    [
      "many heads over one",
      { lengths: [129], heads: 12, kvHeads: 1, headDim: 8, gap: 1 },
      (length: number) => length - 2,
    ],
  ] as const)("%s", async (_, shape, from) => {
    await compare(kernels, 5e-6, (on) => paged(on, shape as Case, from));
  });

  it("stays finite where scores are in the thousands", async () => {
    await compare(kernels, 1e-3, (on) => paged(on, { ...HEADS_OF_16, size: 3000 }, () => 0));
  });

  it("computes the same in other parts", async () => {
    const { device, info } = context.gpu;
    const shape: Case = { lengths: [300, 20], heads: 1, kvHeads: 1, headDim: 16 };
    const parts = partsFor({ ...shape, scale: 1 }, device);
    expect(parts.length).toBeGreaterThan(1);
    for (const part of info.isSoftware ? parts.slice(-2, -1) : parts)
      await compare(kernels, 5e-6, (on) =>
        paged(
          on,
          shape,
          (length) => length - 1,
          on === kernels ? (operation) => attentionPaged(context, operation, part) : undefined,
        ),
      );
  });

  it("gives a row the same bits alone and among others, twice", async () => {
    const all = { ...HEADS_OF_16, lengths: [60, 17, 600] };
    const width = all.heads * all.headDim;
    const last = (length: number) => length - 1;
    const [first] = paged(kernels, all, last);
    const [second] = paged(kernels, all, last);
    const [alone] = paged(kernels, { ...all, lengths: [60] }, last);
    await expectSameBits([first!], [second!]);
    await expectSameBits([sliceBuffer(first!, 0, width)], [alone!]);
  });

  it("agrees with attention that is not paged", async () => {
    const operation = operationOf(kernels, { ...HEADS_OF_16, gap: 0, lengths: [150] });
    const { shape, query, key, value } = operation;
    kernels.attention(operation);
    const rows = 150;
    const pages = Math.ceil(rows / PAGE_SIZE);
    const inPages = (buffer: F32) => {
      const target = kernels.alloc(pages * PAGE_SIZE * shape.kvHeads * shape.headDim);
      return { target, fill: async () => kernels.upload(target, await kernels.download(buffer)) };
    };
    const [keys, values] = [inPages(key.data), inPages(value.data)];
    await Promise.all([keys.fill(), values.fill()]);
    const out = kernels.alloc(rows * shape.heads * shape.headDim);
    kernels.attentionPaged({
      out,
      query,
      keyPages: keys.target,
      valuePages: values.target,
      pageTables: ints(
        kernels,
        Array.from({ length: rows * pages }, (_, index) => index % pages),
      ),
      lengths: ints(
        kernels,
        Array.from({ length: rows }, (_, row) => row + 1),
      ),
      rows,
      pagesPerRow: pages,
      pageSize: PAGE_SIZE,
      shape,
    });
    const [actual, expected] = [await kernels.download(out), await kernels.download(operation.out)];
    expect(relativeError(actual, expected)).toBeLessThan(2e-6);
  });
});
