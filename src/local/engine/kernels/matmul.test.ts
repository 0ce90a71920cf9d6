import { afterAll, describe, expect, it } from "vitest";
import type { Kernels, MatmulOptions } from "./kernels.js";
import { createReferenceKernels } from "./reference.js";
import { firstBitDifference, put, randomFloats } from "./test-support.js";
import { createWasmKernels } from "./wasm-kernels.js";

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
  packed?: boolean;
}

/** The whole buffer behind c, padding between rows included, so that stray writes show. */
function product(kernels: Kernels, { m, n, k, options, packed = false }: Product): Float32Array {
  const lda = options.lda ?? (options.transA ? m : k);
  const ldb = options.ldb ?? (options.transB ? k : n);
  const ldc = options.ldc ?? n;
  const a = put(kernels, randomFloats((options.transA ? k : m) * lda, 1));
  const b = put(kernels, randomFloats((options.transB ? n : k) * ldb, 2));
  const c = put(kernels, randomFloats(m * ldc, 3));
  const room = kernels.alloc(b.length);
  const [rows, cols] = options.transB ? [n, k] : [k, n];
  kernels.matmul(c, a, packed ? kernels.pack(room, b, rows, cols) : b, m, n, k, options);
  const result = kernels.view(c).slice();
  for (const buffer of [a, b, c, room]) kernels.free(buffer);
  return new Float32Array(result);
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
  it("equals the in-order float32 reference bit for bit, for every layout, edge and thread count", () => {
    for (const [m, n, k] of shapes) {
      for (const layout of layouts) {
        for (const accumulate of [false, true]) {
          const call = { m, n, k, options: { ...layout, accumulate } };
          const expected = product(reference, call);
          for (const kernels of plain) {
            for (const packed of [false, true]) {
              const difference = firstBitDifference(product(kernels, { ...call, packed }), expected);
              const where = { call, packed, threads: kernels.threads };
              expect({ ...where, difference }).toEqual({ ...where, difference: null });
            }
          }
        }
      }
    }
  });

  it("stays inside its rows when matrices are parts of wider ones", () => {
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
        const expected = product(reference, call);
        for (const kernels of plain) expect(firstBitDifference(product(kernels, call), expected)).toBeNull();
      }
    }
  });

  it("gives the same bits for any number of threads on products large enough to be shared", () => {
    for (const layout of layouts) {
      for (const [m, n, k] of [
        [70, 105, 110],
        [12, 700, 80],
        [1, 4000, 160],
        [900, 14, 64],
        [300, 50, 75],
      ] as const) {
        const call = { m, n, k, options: layout };
        const expected = product(reference, call);
        for (const kernels of plain) {
          for (let repeat = 0; repeat < 3; repeat++) {
            expect(firstBitDifference(product(kernels, call), expected)).toBeNull();
          }
          expect(firstBitDifference(product(kernels, { ...call, packed: true }), expected)).toBeNull();
        }
        const fused = product(relaxed[0]!, call);
        expect(firstBitDifference(product(relaxed[1]!, call), fused)).toBeNull();
        expect(firstBitDifference(product(relaxed[1]!, { ...call, packed: true }), fused)).toBeNull();
      }
    }
  });

  it("with relaxed SIMD gives a row the same bits alone and among others, close to the plain result", () => {
    const [kernels] = relaxed as [Kernels];
    for (const transB of [false, true]) {
      const all = product(kernels, { m: 9, n: 37, k: 70, options: { transB } });
      const alone = product(kernels, { m: 1, n: 37, k: 70, options: { transB } });
      expect(firstBitDifference(all.slice(0, 37), alone)).toBeNull();
      const exact = product(reference, { m: 9, n: 37, k: 70, options: { transB } });
      for (let i = 0; i < exact.length; i++) expect(all[i]).toBeCloseTo(exact[i]!, 5);
    }
  });

  it("refuses buffers that are too small, naming them", () => {
    const [kernels] = plain as [Kernels];
    const [a, b, c] = [kernels.alloc(6), kernels.alloc(6), kernels.alloc(4)];
    expect(() => kernels.matmul(c, a, b, 3, 2, 2)).toThrow("c has 4 elements, the operation needs 6");
    expect(() => kernels.matmul(c, a, b, 2, 2, 4)).toThrow("a has 6 elements, the operation needs 8");
    expect(() => kernels.matmul(c, a, b, 2, 2, 3, { ldc: 1 })).toThrow(
      "c has rows 1 apart, but they are 2 wide",
    );
    const packed = kernels.pack(kernels.alloc(6), b, 3, 2);
    expect(() => kernels.matmul(c, a, packed, 1, 3, 2)).toThrow(
      "b is packed as 3 x 2, the operation needs 2 x 3",
    );
  });
});
