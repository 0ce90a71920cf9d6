import { afterAll, describe, expect, it } from "vitest";
import { createReferenceKernels } from "../../../../test/engine/reference-kernels.js";
import type { MatmulOptions } from "./kernels.js";
import {
  firstBitDifference,
  freeze,
  put,
  putInts,
  randomFloats,
  type ViewedKernels,
} from "./test-support.js";
import { createWasmKernels } from "./wasm-kernels.node.js";

const reference = createReferenceKernels();
const plain = [1, 2, 3].map((threads) => createWasmKernels({ threads }));
const relaxed = [1, 2].map((threads) => createWasmKernels({ threads, relaxedSimd: true }));

afterAll(async () => {
  await Promise.all([...plain, ...relaxed].map((kernels) => kernels.close()));
});

interface Product {
  m: number;
  n: number;
  k: number;
  options: MatmulOptions;
  frozen?: boolean;
}

/** The whole buffer behind c, padding between rows included, so that stray writes show. */
async function product(kernels: ViewedKernels, call: Product): Promise<Float32Array> {
  const { m, n, k, options, frozen = false } = call;
  const lda = options.lda ?? (options.transA ? m : k);
  const ldb = options.ldb ?? (options.transB ? k : n);
  const ldc = options.ldc ?? n;
  const values = randomFloats((options.transB ? n : k) * ldb, 2);
  const a = put(kernels, randomFloats((options.transA ? k : m) * lda, 1));
  const b = put(kernels, values);
  const c = put(kernels, randomFloats(m * ldc, 3));
  const [inputs, outputs] = options.transB ? [n, k] : [k, n];
  kernels.matmul(c, a, frozen ? await freeze(kernels, values, inputs, outputs) : b, m, n, k, options);
  const result = kernels.view(c).slice();
  for (const buffer of [a, b, c]) kernels.free(buffer);
  return result;
}

const layouts: MatmulOptions[] = [{}, { transA: true }, { transB: true }, { transA: true, transB: true }];
const shapes: [number, number, number][] = [];
for (const m of [1, 2, 3, 4, 5, 8, 31]) {
  for (const n of [1, 3, 4, 7, 8, 9, 16, 33, 63]) for (const k of [1, 2, 4, 7, 33]) shapes.push([m, n, k]);
}
shapes.push(
  [1, 100, 257],
  [130, 20, 40],
  [20, 530, 12],
  [137, 71, 300],
  [4, 8, 600],
  [6, 40, 0],
  [257, 8, 9],
  [260, 45, 300],
  [2, 515, 9],
);

describe("matmul", () => {
  it("equals the in-order float32 reference bit for bit, for every layout, edge and thread count", async () => {
    for (const [m, n, k] of shapes) {
      for (const layout of layouts) {
        for (const accumulate of [false, true]) {
          const call = { m, n, k, options: { ...layout, accumulate } };
          const expected = await product(reference, call);
          for (const kernels of plain) {
            for (const frozen of [false, true]) {
              const difference = firstBitDifference(await product(kernels, { ...call, frozen }), expected);
              const where = { call, frozen, threads: kernels.threads };
              expect({ ...where, difference }).toEqual({ ...where, difference: null });
            }
          }
        }
      }
    }
  });

  it("stays inside its rows when matrices are parts of wider ones", async () => {
    for (const [m, n, k] of [
      [1, 5, 9],
      [3, 13, 6],
      [9, 11, 10],
      [70, 70, 20],
    ] as const) {
      for (const layout of layouts) {
        const lda = (layout.transA ? m : k) + 3;
        const ldb = (layout.transB ? k : n) + 5;
        const call = { m, n, k, options: { ...layout, accumulate: true, lda, ldb, ldc: n + 2 } };
        const expected = await product(reference, call);
        for (const kernels of plain)
          expect(firstBitDifference(await product(kernels, call), expected)).toBeNull();
      }
    }
  });

  it("gives the same bits for any number of threads on products large enough to be shared", async () => {
    for (const layout of layouts) {
      for (const [m, n, k] of [
        [70, 105, 110],
        [12, 700, 80],
        [1, 4000, 160],
        [900, 14, 64],
        [300, 50, 75],
      ] as const) {
        const call = { m, n, k, options: layout };
        const expected = await product(reference, call);
        for (const kernels of plain) {
          for (let repeat = 0; repeat < 3; repeat++) {
            expect(firstBitDifference(await product(kernels, call), expected)).toBeNull();
          }
          expect(firstBitDifference(await product(kernels, { ...call, frozen: true }), expected)).toBeNull();
        }
        const fused = await product(relaxed[0]!, call);
        expect(firstBitDifference(await product(relaxed[1]!, call), fused)).toBeNull();
        expect(firstBitDifference(await product(relaxed[1]!, { ...call, frozen: true }), fused)).toBeNull();
      }
    }
  });

  it("with relaxed SIMD gives a row the same bits alone and among others, close to the plain result", async () => {
    const kernels = relaxed[0]!;
    for (const transB of [false, true]) {
      const all = await product(kernels, { m: 9, n: 37, k: 70, options: { transB } });
      const alone = await product(kernels, { m: 1, n: 37, k: 70, options: { transB } });
      expect(firstBitDifference(all.slice(0, 37), alone)).toBeNull();
      const exact = await product(reference, { m: 9, n: 37, k: 70, options: { transB } });
      for (let i = 0; i < exact.length; i++) expect(all[i]).toBeCloseTo(exact[i]!, 5);
    }
  });

  it("refuses buffers that are too small, naming them", async () => {
    const kernels = plain[0]!;
    const [a, b, c] = [kernels.alloc(6), kernels.alloc(6), kernels.alloc(4)];
    expect(() => kernels.matmul(c, a, b, 3, 2, 2)).toThrow("c has 4 elements, the operation needs 6");
    expect(() => kernels.matmul(c, a, b, 2, 2, 4)).toThrow("a has 6 elements, the operation needs 8");
    expect(() => kernels.matmul(c, a, b, 2, 2, 3, { ldc: 1 })).toThrow(
      "c has rows 1 apart, but they are 2 wide",
    );
    const frozen = kernels.frozen(3, 2, "F32");
    expect(() => kernels.matmul(c, a, frozen, 1, 3, 2)).toThrow(
      "b is frozen as 3 x 2, the operation needs 2 x 3",
    );
  });
});

describe("a frozen matrix", () => {
  it("is filled from parts of any type, and its outputs are the rows of a table", async () => {
    for (const kernels of [reference, plain[1]!]) {
      for (const [inputs, outputs] of [
        [5, 3],
        [300, 21],
        [8, 16],
      ] as const) {
        const values = randomFloats(inputs * outputs, 4);
        const [matrix, out] = [await freeze(kernels, values, inputs, outputs), kernels.alloc(3 * inputs)];
        const rows = [outputs - 1, 0, Math.floor(outputs / 2)];
        kernels.gatherRows(out, matrix, putInts(kernels, rows), 3, inputs);
        const expected = rows.flatMap((row) =>
          Array.from({ length: inputs }, (_, i) => values[i * outputs + row]),
        );
        expect(Array.from(kernels.view(out))).toEqual(expected);
      }
      const halves = kernels.frozen(2, 2, "BF16");
      const bytes = new Uint8Array(Uint16Array.of(0x3f80, 0x4000, 0xbf80, 0x3f00).buffer);
      await kernels.fill(halves, 0, { dtype: "BF16", shape: [2, 2], bytes });
      const out = kernels.alloc(2);
      kernels.gatherRows(out, halves, putInts(kernels, [1]), 1, 2);
      expect(Array.from(kernels.view(out))).toEqual([-1, 0.5]);
    }
  });

  it("refuses tensors and rows that it has no place for", async () => {
    const kernels = plain[0]!;
    const matrix = kernels.frozen(3, 4, "F32");
    const bytes = new Uint8Array(4 * 6);
    await expect(kernels.fill(matrix, 3, { dtype: "F32", shape: [2, 3], bytes })).rejects.toThrow(
      "a tensor of [2,3] at output 3 of [4, 3]",
    );
    await expect(kernels.fill(matrix, 0, { dtype: "F32", shape: [3, 2], bytes })).rejects.toThrow(
      "a tensor of [3,2] at output 0 of [4, 3]",
    );
    const out = kernels.alloc(6);
    expect(() => kernels.gatherRows(out, matrix, putInts(kernels, [1, 4]), 2, 3)).toThrow(
      "indices[1] is 4, expected 0 to 3",
    );
    expect(() => kernels.gatherRows(out, matrix, putInts(kernels, [1]), 1, 2)).toThrow(
      "the table is frozen with rows of 3, the operation needs 2",
    );
  });
});
