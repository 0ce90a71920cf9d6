import { afterAll, describe, expect, it } from "vitest";
import { type FloatDtype, fromFloat32, toFloat32 } from "../../../src/checkpoints/safetensors.js";
import { type Frozen, from, type MatmulOptions } from "../../../src/local/engine/kernels/kernels.js";
import { put, randomFloats, relativeError } from "../../../src/local/engine/kernels/test-support.js";
import type { ProductPlan } from "../../../src/local/engine/kernels/webgpu/product-plan.js";
import { multiply } from "../../../src/local/engine/kernels/webgpu/products.js";
import type { GpuContext } from "../../../src/local/engine/kernels/webgpu/webgpu-kernels.js";
import { openKernels } from "../gpus.js";

const kernels = await openKernels();
afterAll(() => kernels.close());

interface Case extends MatmulOptions {
  /** Elements in front of each matrix. */
  offset?: number;
  /** The right side is frozen, in this type. */
  dtype?: FloatDtype;
  plan?: ProductPlan;
}

async function frozen(stored: Float32Array, outputs: number, inputs: number, dtype: FloatDtype) {
  const matrix = kernels.frozen(inputs, outputs, dtype);
  await kernels.fill(matrix, 0, { dtype, shape: [outputs, inputs], bytes: fromFloat32(stored, dtype) });
  return matrix;
}

/** What is in c after the product, and what should be. */
async function product(m: number, n: number, k: number, settings: Case = {}) {
  const { offset = 0, dtype, plan, ...options } = settings;
  const { transA = false, transB = false, accumulate = false } = options;
  const lda = options.lda ?? (transA ? m : k);
  // A frozen matrix is stored as [outputs, inputs], which is transposed: its plain product reads columns.
  const isStoredByColumn = dtype ? !transB : transB;
  const ldb = options.ldb ?? (isStoredByColumn ? k : n);
  const ldc = options.ldc ?? n;
  const a = randomFloats(offset + (transA ? k : m) * lda, 1);
  let b = randomFloats((dtype ? 0 : offset) + (isStoredByColumn ? n : k) * ldb, 2);
  if (dtype) b = toFloat32(fromFloat32(b, dtype), dtype, "b");
  const c = randomFloats(offset + m * ldc + 3, 3);

  const expected = Float32Array.from(c);
  const bStart = dtype ? 0 : offset;
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      let sum = accumulate ? c[offset + i * ldc + j]! : 0;
      for (let l = 0; l < k; l++) {
        const left = a[offset + (transA ? l * lda + i : i * lda + l)]!;
        sum += left * b[bStart + (isStoredByColumn ? j * ldb + l : l * ldb + j)]!;
      }
      expected[offset + i * ldc + j] = sum;
    }
  }

  const [onGpuA, onGpuC] = [put(kernels, a), put(kernels, c)];
  let right: Frozen | ReturnType<typeof put>;
  if (!dtype) right = from(put(kernels, b), offset);
  else right = await frozen(b, isStoredByColumn ? n : k, isStoredByColumn ? k : n, dtype);
  const operation = { c: from(onGpuC, offset), a: from(onGpuA, offset), b: right, m, n, k };
  if (plan) multiply(kernels as unknown as GpuContext, { ...operation, ...options }, plan);
  else kernels.matmul(operation.c, operation.a, operation.b, m, n, k, options);
  return { actual: await kernels.download(onGpuC), expected };
}

async function check(m: number, n: number, k: number, settings: Case = {}) {
  const { actual, expected } = await product(m, n, k, settings);
  expect(relativeError(actual, expected)).toBeLessThan(2e-6 + 1e-8 * k);
}

const MODES: MatmulOptions[] = [
  {},
  { transA: true },
  { transB: true },
  { transA: true, transB: true, accumulate: true },
];
const DTYPES: FloatDtype[] = ["BF16", "F16", "F32"];

describe("matmul", () => {
  for (const options of MODES) {
    const name = Object.keys(options).join(" ") || "plain";
    it.each([
      [1, 1, 1, 0],
      [1, 70, 300, 3],
      [8, 64, 36, 0],
      [7, 33, 260, 3],
      [9, 12, 16, 0],
      [70, 31, 90, 3],
    ])(`${name}: %i x %i x %i from %i on`, async (m, n, k, offset) => {
      await check(m, n, k, { ...options, offset });
    });

    it.each([6, 40])(`${name}: %i rows inside wider matrices`, async (m) => {
      await check(m, 24, 20, { ...options, lda: 48, ldb: 28, ldc: 32 });
      await check(m, 24, 20, { ...options, lda: 47, ldb: 29, ldc: 27, accumulate: true, offset: 4 });
    });
  }

  for (const dtype of DTYPES) {
    it.each([
      [1, 5, 3],
      [5, 9, 261],
      [33, 65, 70],
      [20, 130, 6],
    ])(`%i x %i x %i with frozen weights in ${dtype}, both ways`, async (m, n, k) => {
      await check(m, n, k, { dtype });
      await check(m, n, k, { dtype, transB: true, accumulate: true });
      await check(m, n, k, { dtype, offset: 1, accumulate: true });
    });
  }

  it("cuts a long k into parts, and adds them to what is there", async () => {
    await check(33, 32, 1500, { transA: true, accumulate: true, lda: 40, ldb: 33, ldc: 36 });
    await check(12, 20, 1024, { transA: true });
    await check(10, 36, 1030, { dtype: "BF16" });
  });

  it("without rows or columns does nothing, without k clears c or leaves it", async () => {
    await check(0, 4, 3);
    await check(4, 0, 3);
    await check(3, 5, 0, { ldc: 7, offset: 2 });
    await check(3, 5, 0, { accumulate: true });
  });

  it("gives the same bits twice", async () => {
    for (const [m, n, k] of [
      [4, 50, 300],
      [40, 50, 700],
    ] as const) {
      const first = await product(m, n, k, { dtype: "BF16" });
      expect(Array.from(first.actual)).toEqual(
        Array.from((await product(m, n, k, { dtype: "BF16" })).actual),
      );
    }
  });

  it("keeps what other rows have out of a row", async () => {
    const [k, n] = [20, 24];
    for (const m of [3, 10]) {
      const values = randomFloats(m * k, 1);
      const b = put(kernels, randomFloats(k * n, 2));
      const rowOf = async (a: Float32Array) => {
        const c = kernels.alloc(m * n);
        kernels.matmul(c, put(kernels, a), b, m, n, k);
        return Array.from((await kernels.download(c)).subarray(0, n));
      };
      const before = await rowOf(values);
      expect(await rowOf(values.map((value, index) => (index < k ? value : Number.NaN)))).toEqual(before);
    }
  });
});

describe("every way to compute a product", () => {
  const tile = {
    kind: "tiles",
    parts: 1,
    depth: 8,
    buffers: 1,
    isPadded: false,
    unroll: 1,
    teams: 1,
    threadRows: 4,
    threadColumns: 4,
  } as const;
  const plans: ProductPlan[] = [
    { ...tile, rows: 128, columns: 128, threadRows: 8, threadColumns: 8 },
    { ...tile, rows: 64, columns: 64, buffers: 2, isPadded: true, parts: 3 },
    { ...tile, rows: 32, columns: 96, depth: 16, unroll: 16, parts: 2 },
    { ...tile, rows: 64, columns: 32, threadRows: 8, threadColumns: 8, depth: 16, unroll: 1, teams: 8 },
    { ...tile, rows: 16, columns: 16, depth: 32, unroll: 2, teams: 16, isPadded: true, buffers: 2, parts: 2 },
    { kind: "columns", lanes: 4, parts: 32, unroll: 1 },
    { kind: "columns", lanes: 16, parts: 4, unroll: 2 },
    { kind: "dots", lanes: 32, teams: 2, columns: 4, unroll: 1 },
    { kind: "dots", lanes: 2, teams: 32, columns: 1, unroll: 2 },
  ];
  it.each(plans.map((plan) => [JSON.stringify(plan), plan] as const))("%s", async (_, plan) => {
    const isByColumn = plan.kind === "dots";
    await check(11, 72, 64, { transB: isByColumn, transA: true, accumulate: true, ldc: 80, plan });
    await check(19, 71, 75, { transB: !isByColumn, dtype: "BF16", offset: 1, plan });
    if (plan.kind === "tiles")
      await check(plan.rows + 2, plan.columns + 13, 20, { dtype: "F16", accumulate: true, plan });
  });
});
