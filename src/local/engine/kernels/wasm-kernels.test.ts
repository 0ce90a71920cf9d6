import { afterAll, describe, expect, it } from "vitest";
import { createReferenceKernels } from "../../../../test/engine/reference-kernels.js";
import { type AttentionShape, type F32, type Kernels, sliceBuffer } from "./kernels.js";
import {
  firstBitDifference,
  put,
  putInts,
  randomFloats,
  read,
  relativeError,
  type ViewedKernels,
} from "./test-support.js";
import { createWasmKernels } from "./wasm-kernels.node.js";

const reference = createReferenceKernels();
const one = createWasmKernels({ threads: 1 });
const three = createWasmKernels({ threads: 3 });
const relaxed = createWasmKernels({ threads: 2, relaxedSimd: true });

afterAll(async () => {
  await Promise.all([one, three, relaxed].map((kernels) => kernels.close()));
});

/** Runs `operation` everywhere: close to the reference, and the same bits for one and three threads. */
function compare(tolerance: number, operation: (kernels: Kernels) => F32[]): void {
  const expected = operation(reference).map((buffer) => read(reference, buffer));
  const single = operation(one).map((buffer) => new Float32Array(one.view(buffer)));
  const several = operation(three).map((buffer) => new Float32Array(three.view(buffer)));
  const fused = operation(relaxed).map((buffer) => read(relaxed, buffer));
  expected.forEach((values, index) => {
    expect(relativeError(single[index]!, values)).toBeLessThan(tolerance);
    expect(relativeError(fused[index]!, values)).toBeLessThan(tolerance);
    expect(firstBitDifference(single[index]!, several[index]!)).toBeNull();
  });
}

describe("norms", () => {
  it("rmsNorm and its gradients agree with the reference", () => {
    for (const [rows, cols] of [
      [1, 1],
      [3, 7],
      [5, 64],
      [40, 30],
      [300, 257],
    ] as const) {
      compare(2e-6, (kernels) => {
        const x = put(kernels, randomFloats(rows * cols, 1));
        const weight = put(kernels, randomFloats(cols, 2));
        const dout = put(kernels, randomFloats(rows * cols, 3));
        const dx = put(kernels, randomFloats(rows * cols, 4));
        const dweight = put(kernels, randomFloats(cols, 5));
        const [out, rstd] = [kernels.alloc(rows * cols), kernels.alloc(rows)];
        kernels.rmsNorm({ out, rstd, x, weight, rows, cols, eps: 1e-5 });
        kernels.rmsNormBackward({ dx, dweight, dout, x, rstd, weight, rows, cols });
        return [out, rstd, dx, dweight];
      });
    }
  });

  it("normRope and its gradients agree with the reference, with and without the norm, inside wider rows", () => {
    for (const [rows, heads, headDim] of [
      [1, 1, 2],
      [5, 2, 6],
      [20, 3, 32],
      [70, 4, 64],
      [9, 2, 80],
    ] as const) {
      for (const normed of [true, false]) {
        compare(3e-6, (kernels) => {
          const width = heads * headDim;
          const stride = width + 8;
          const rowsOf = (seed: number) => ({
            data: put(kernels, randomFloats(rows * stride, seed)),
            stride,
          });
          const [x, dout, out, dx] = [rowsOf(1), rowsOf(2), rowsOf(3), rowsOf(4)];
          const weight = normed ? put(kernels, randomFloats(headDim, 5)) : undefined;
          const rstd = normed ? kernels.alloc(rows * heads) : undefined;
          const dweight = normed ? put(kernels, randomFloats(headDim, 6)) : undefined;
          const radians = randomFloats(16 * (headDim / 2), 7);
          const cos = put(kernels, radians.map(Math.cos));
          const sin = put(kernels, radians.map(Math.sin));
          const positions = putInts(
            kernels,
            Array.from({ length: rows }, (_, row) => (row * 5) % 16),
          );
          const shared = { x, rstd, weight, angles: { cos, sin, positions }, rows, heads, headDim };
          kernels.normRope({ ...shared, out, eps: 1e-6 });
          kernels.normRopeBackward({ ...shared, dx, dweight, dout });
          return [out.data, dx.data, ...(rstd && dweight ? [rstd, dweight] : [])];
        });
      }
    }
  });
});

describe("swiglu", () => {
  it("agrees with the reference, forward and backward, also far out", () => {
    for (const [rows, cols] of [
      [1, 3],
      [7, 13],
      [90, 300],
    ] as const) {
      compare(1e-6, (kernels) => {
        const gateUp = put(
          kernels,
          randomFloats(2 * rows * cols, 1).map((value, i) => (i % 11 === 0 ? 120 * value : 4 * value)),
        );
        const dout = put(kernels, randomFloats(rows * cols, 2));
        const [out, dgateUp] = [kernels.alloc(rows * cols), kernels.alloc(2 * rows * cols)];
        kernels.swiglu(out, gateUp, rows, cols);
        kernels.swigluBackward(dgateUp, dout, gateUp, rows, cols);
        return [out, dgateUp];
      });
    }
  });
});

describe("rows", () => {
  it("gathers, scatters and adds in order", () => {
    for (const [rows, cols] of [
      [1, 1],
      [6, 5],
      [700, 250],
    ] as const) {
      const indices = Array.from({ length: rows }, (_, row) => (row * row) % 9);
      compare(1e-30, (kernels) => {
        const table = put(kernels, randomFloats(9 * cols, 1));
        const sums = put(kernels, randomFloats(9 * cols, 2));
        const stored = put(kernels, randomFloats(rows * cols, 3));
        const x = put(kernels, randomFloats(rows * (cols + 2), 4));
        const out = kernels.alloc(rows * cols);
        kernels.gatherRows(out, table, putInts(kernels, indices), rows, cols);
        kernels.scatterAddRows(sums, out, putInts(kernels, indices), rows, cols);
        const places = Array.from({ length: rows }, (_, row) => rows - 1 - row);
        kernels.scatterRows(stored, { data: x, stride: cols + 2 }, putInts(kernels, places), rows, cols);
        return [out, sums, stored];
      });
    }
  });

  it("refuses an index outside the table", () => {
    const [out, table] = [one.alloc(4), one.alloc(8)];
    expect(() => one.gatherRows(out, table, putInts(one, [1, 4]), 2, 2)).toThrow(
      "indices[1] is 4, expected 0 to 3",
    );
  });
});

function attentionInputs(kernels: Kernels, rows: number, shape: AttentionShape) {
  const kvWidth = shape.kvHeads * shape.headDim;
  const stride = shape.heads * shape.headDim + 2 * kvWidth + 4;
  const packed = put(kernels, randomFloats(rows * stride, 1));
  const qWidth = shape.heads * shape.headDim;
  const part = (start: number) => ({ data: sliceBuffer(packed, start, rows * stride - start), stride });
  return { query: part(0), key: part(qWidth), value: part(qWidth + kvWidth), qWidth, kvWidth };
}

const shapes: AttentionShape[] = [
  { heads: 1, kvHeads: 1, headDim: 4, scale: 0.5 },
  { heads: 4, kvHeads: 2, headDim: 32, scale: 32 ** -0.5 },
  { heads: 2, kvHeads: 2, headDim: 64, scale: 0.125 },
  { heads: 6, kvHeads: 1, headDim: 10, scale: 0.3 },
  { heads: 2, kvHeads: 1, headDim: 128, scale: 128 ** -0.5 },
];

describe("attention", () => {
  it("agrees with the reference on packed sequences, forward and backward", () => {
    for (const shape of shapes) {
      const offsets = [0, 1, 6, 6, 41, 110];
      compare(5e-6, (kernels) => {
        const rows = 110;
        const { query, key, value, qWidth } = attentionInputs(kernels, rows, shape);
        const [out, logSumExp] = [kernels.alloc(rows * qWidth), kernels.alloc(rows * shape.heads)];
        const packs = putInts(kernels, offsets);
        const operation = { out, logSumExp, query, key, value, offsets: packs, shape };
        kernels.attention(operation);
        const gradients = attentionInputs(kernels, rows, shape);
        const dout = put(kernels, randomFloats(rows * qWidth, 9));
        const { query: dquery, key: dkey, value: dvalue } = gradients;
        kernels.attentionBackward({ ...operation, dquery, dkey, dvalue, dout });
        return [out, logSumExp, dquery.data];
      });
    }
  });

  it("gives a sequence the same bits alone and packed with others", () => {
    const shape = shapes[1]!;
    for (const kernels of [three, relaxed]) {
      const run = (first: number, offsets: number[]) => {
        const { query, key, value, qWidth } = attentionInputs(kernels, 110, shape);
        const rows = offsets.at(-1)!;
        const from = ({ data, stride }: { data: F32; stride: number }) => ({
          data: sliceBuffer(data, first * stride, data.length - first * stride),
          stride,
        });
        const [out, logSumExp] = [kernels.alloc(rows * qWidth), kernels.alloc(rows * shape.heads)];
        kernels.attention({
          out,
          logSumExp,
          query: from(query),
          key: from(key),
          value: from(value),
          offsets: putInts(kernels, offsets),
          shape,
        });
        return new Float32Array(kernels.view(out));
      };
      const packed = run(0, [0, 20, 65, 110]);
      const alone = run(20, [0, 45]);
      const width = shape.heads * shape.headDim;
      expect(firstBitDifference(packed.slice(20 * width, 65 * width), alone)).toBeNull();
    }
  });

  it("gives the same bits from pages, in prefill and one row at a time, as packed", () => {
    for (const shape of shapes) {
      for (const kernels of [one, three, relaxed]) {
        const rows = 50;
        const { query, key, value, qWidth, kvWidth } = attentionInputs(kernels, rows, shape);
        const [out, logSumExp] = [kernels.alloc(rows * qWidth), kernels.alloc(rows * shape.heads)];
        const offsets = putInts(kernels, [0, rows]);
        kernels.attention({ out, logSumExp, query, key, value, offsets, shape });

        const [pageSize, pagesPerRow] = [8, 9];
        const table = [5, 2, 9, 0, 7, 3, 8, 1, 1];
        const places = putInts(
          kernels,
          Array.from(
            { length: rows },
            (_, j) => table[Math.floor(j / pageSize)]! * pageSize + (j % pageSize),
          ),
        );
        const [keyPages, valuePages] = [
          kernels.alloc(10 * pageSize * kvWidth),
          kernels.alloc(10 * pageSize * kvWidth),
        ];
        kernels.scatterRows(keyPages, key, places, rows, kvWidth);
        kernels.scatterRows(valuePages, value, places, rows, kvWidth);
        const lengths = Array.from({ length: rows }, (_, row) => row + 1);
        const paged = kernels.alloc(rows * qWidth);
        const pages = { keyPages, valuePages, pagesPerRow, pageSize, shape };
        kernels.attentionPaged({
          ...pages,
          out: paged,
          query,
          pageTables: putInts(
            kernels,
            lengths.flatMap(() => table),
          ),
          lengths: putInts(kernels, lengths),
          rows,
        });
        const expected = new Float32Array(kernels.view(out));
        expect(firstBitDifference(new Float32Array(kernels.view(paged)), expected)).toBeNull();

        const single = kernels.alloc(qWidth);
        for (const row of [0, 7, 8, 49]) {
          const { data, stride } = query;
          kernels.attentionPaged({
            ...pages,
            out: single,
            query: { data: sliceBuffer(data, row * stride, qWidth), stride },
            pageTables: putInts(kernels, table),
            lengths: putInts(kernels, [row + 1]),
            rows: 1,
          });
          expect(
            firstBitDifference(
              new Float32Array(kernels.view(single)),
              expected.slice(row * qWidth, (row + 1) * qWidth),
            ),
          ).toBeNull();
        }
      }
    }
  });

  it("agrees with the reference on rows with tables of their own", () => {
    const shape = shapes[1]!;
    compare(5e-6, (kernels) => {
      const rows = 40;
      const { query, kvWidth, qWidth } = attentionInputs(kernels, rows, shape);
      const [pageSize, pagesPerRow, pages] = [4, 5, 12];
      const keyPages = put(kernels, randomFloats(pages * pageSize * kvWidth, 5));
      const valuePages = put(kernels, randomFloats(pages * pageSize * kvWidth, 6));
      const tables = Array.from({ length: rows * pagesPerRow }, (_, i) => (i * 7 + (i >> 4)) % pages);
      const lengths = Array.from({ length: rows }, (_, row) => 1 + ((row * 3) % (pagesPerRow * pageSize)));
      const out = kernels.alloc(rows * qWidth);
      kernels.attentionPaged({
        out,
        query,
        keyPages,
        valuePages,
        pageTables: putInts(kernels, tables),
        lengths: putInts(kernels, lengths),
        rows,
        pagesPerRow,
        pageSize,
        shape,
      });
      return [out];
    });
  });
});

describe("vocabulary", () => {
  it("log-probabilities and their gradient agree with the reference", () => {
    for (const [rows, vocab, perRow] of [
      [1, 1, 1],
      [3, 7, 2],
      [9, 64, 1],
      [60, 1003, 3],
    ] as const) {
      compare(2e-6, (kernels) => {
        const values = randomFloats(rows * vocab, 1).map((value) => 12 * value);
        const logits = put(kernels, values);
        const targets = putInts(
          kernels,
          Array.from({ length: rows * perRow }, (_, i) => (i * 31) % vocab),
        );
        const coefficients = put(
          kernels,
          randomFloats(rows * perRow, 2).map((value, i) => (i === 0 ? 0 : value)),
        );
        const [logprobs, logSumExp] = [kernels.alloc(rows * perRow), kernels.alloc(rows)];
        const shared = { logits, logSumExp, targets, rows, vocabSize: vocab, targetsPerRow: perRow };
        kernels.logSoftmaxGather({ ...shared, logprobs });
        kernels.logitsGradient({ ...shared, coefficients });
        return [logprobs, logSumExp, logits];
      });
    }
  });

  it("stays finite for logits of any size", () => {
    const logits = put(one, Float32Array.of(3e38, -3e38, 0, 88, 1000, 1001, -1e4, 999));
    const [logprobs, logSumExp] = [one.alloc(2), one.alloc(2)];
    const targets = putInts(one, [0, 1]);
    one.logSoftmaxGather({ logprobs, logSumExp, logits, targets, rows: 2, vocabSize: 4, targetsPerRow: 1 });
    expect(read(one, logprobs)[0]).toBe(0);
    expect(read(one, logprobs)[1]).toBeCloseTo(-Math.log(1 + Math.exp(-1) + Math.exp(-2)), 4);
  });
});

describe("whole buffers", () => {
  it("equal the reference bit for bit, AdamW and the sum of squares included", async () => {
    for (const length of [1, 2, 3, 6, 65, 40_001]) {
      const step = {
        learningRate: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weightDecay: 0.1,
        gradScale: 0.7,
      };
      const run = async (kernels: ViewedKernels) => {
        const [w, g, m, v] = [1, 2, 3, 4].map((seed) => put(kernels, randomFloats(length, seed))) as [
          F32,
          F32,
          F32,
          F32,
        ];
        kernels.zero(m);
        kernels.zero(v);
        for (let index = 1; index <= 3; index++) kernels.adamw(w, g, m, v, { ...step, step: index });
        const sum = kernels.alloc(length);
        kernels.add(sum, w, g);
        kernels.addScaled(sum, m, -0.3);
        kernels.scale(sum, 1.7);
        const twin = kernels.alloc(length);
        kernels.copy(twin, sum);
        kernels.add(twin, twin, twin);
        return {
          arrays: [w, m, v, sum, twin].map((buffer) => new Float32Array(kernels.view(buffer))),
          norm: await kernels.sumSquares(g),
        };
      };
      const expected = await run(reference);
      for (const kernels of [one, three, relaxed]) {
        const actual = await run(kernels);
        expect(actual.norm).toBe(expected.norm);
        expected.arrays.forEach((values, index) => {
          expect(firstBitDifference(actual.arrays[index]!, values)).toBeNull();
        });
      }
    }
  });
});
