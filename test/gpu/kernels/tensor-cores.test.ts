import { afterAll, describe, expect, it } from "vitest";
import { type FloatDtype, fromFloat32, toFloat32 } from "../../../src/checkpoints/safetensors.js";
import type { F32, Frozen, GpuPrecision, Kernels } from "../../../src/local/engine/kernels/kernels.js";
import { put, randomFloats } from "../../../src/local/engine/kernels/test-support.js";
import { packHalf } from "../../../src/local/engine/kernels/webgpu/half-operand.js";
import type { Product } from "../../../src/local/engine/kernels/webgpu/product-operands.js";
import { multiplyMatrices } from "../../../src/local/engine/kernels/webgpu/products.js";
import type { Shader } from "../../../src/local/engine/kernels/webgpu/shader.js";
import {
  multiplyOnTensorCores,
  planTensorProduct,
} from "../../../src/local/engine/kernels/webgpu/tensor-cores.js";
import type { TensorTile } from "../../../src/local/engine/kernels/webgpu/tensor-tiles.js";
import type { GpuContext } from "../../../src/local/engine/kernels/webgpu/webgpu-kernels.js";
import { openKernels } from "../gpus.js";

const fast = openKernels({ precision: "fast" });
const kernels = (await fast.catch(() => openKernels())) as Kernels & GpuContext;
afterAll(() => kernels.close());
const context = kernels.gpu.info.hasTensorCores ? kernels : withEmulatedMatrices(kernels);

/** Only tensor cores have subgroup matrices: elsewhere plain loops stand for them, so that the rest of the shader is tested. */
function withEmulatedMatrices(real: Kernels & GpuContext): GpuContext {
  const emulated = new Map<string, Shader>();
  const run = (shader: Shader, operation: Parameters<typeof real.queue.run>[1]) => {
    if (!emulated.has(shader.name)) emulated.set(shader.name, { ...shader, code: emulate(shader.code) });
    real.queue.run(emulated.get(shader.name)!, operation);
  };
  return Object.assign(Object.create(real) as object, {
    queue: { run },
    mark: () => real.mark(),
    release: (mark: number) => real.release(mark),
    scratch: (length: number) => real.scratch(length),
    scratchInts: (length: number) => real.scratchInts(length),
  }) as unknown as GpuContext;
}

const EMULATION = /* wgsl */ `
struct Left { offset: u32, stride: u32 }
struct Right { offset: u32, stride: u32, is_column_major: bool }
alias Sum = array<f32, 8>;
var<private> matrix_lane: u32;
fn packed(values: vec4f) -> vec2u { return vec2u(pack2x16float(values.xy), pack2x16float(values.zw)); }
fn unpacked(words: vec2u, index: u32) -> f32 { return unpack2x16float(words[index / 2u])[index % 2u]; }
fn multiply_add(left: Left, right: Right, sum: Sum) -> Sum {
  var out = sum;
  for (var i = 0u; i < 8u; i++) {
    let row = (matrix_lane + 32u * i) / 16u;
    let column = (matrix_lane + 32u * i) % 16u;
    for (var k = 0u; k < 16u; k++) {
      let x = unpacked(a_tile[left.offset + row * left.stride + k / 4u], k % 4u);
      let at = select(vec2u(k, column), vec2u(column, k), right.is_column_major);
      out[i] += x * unpacked(b_tile[right.offset + at.x * right.stride + at.y / 4u], at.y % 4u);
    }
  }
  return out;
}
fn store_sum(start: u32, sum: Sum, stride: u32) {
  for (var i = 0u; i < 8u; i++) {
    let at = matrix_lane + 32u * i;
    sums[start + at / 16u * stride + at % 16u] = sum[i];
  }
}
`;

function emulate(code: string): string {
  if (!code.includes("subgroup_matrix")) return code;
  return (
    code
      .replaceAll(/^enable .*;$/gm, "")
      .replaceAll("bitcast<vec4<f16>>(words)", "words")
      .replaceAll("vec4<f16>(bitcast<vec4f>(wide))", "packed(bitcast<vec4f>(wide))")
      .replaceAll("vec4<f16>", "vec2u")
      .replaceAll(/@builtin\(subgroup_(invocation_)?id\) .*: u32,/g, "")
      .replace(
        "let id = flat(group);",
        "let subgroup = lane / 32u; let subgroup_lane = lane % 32u; matrix_lane = subgroup_lane; let id = flat(group);",
      )
      .replaceAll("subgroup_matrix_result<f32, 16, 16>", "Sum")
      .replaceAll("subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, row_major>(&a_tile, ", "Left(")
      .replaceAll(
        /subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>, (row|col)_major>\(&b_tile, (.*?), (\d+u)\);/g,
        (_, major, offset, stride) => `Right(${offset}, ${stride}, ${major === "col"});`,
      )
      .replaceAll("subgroupMatrixMultiplyAccumulate", "multiply_add")
      .replaceAll("subgroupMatrixStore<row_major>(&sums, ", "store_sum(") + EMULATION
  );
}

const transposed = (values: Float32Array, rows: number, columns: number) =>
  stored(values, rows, columns, true, rows);

/** A [rows, columns] matrix as it lies in memory, with `stride` between its rows, or between its columns where these are the rows. */
function stored(
  values: Float32Array,
  rows: number,
  columns: number,
  isTransposed: boolean,
  stride: number,
): Float32Array {
  const out = new Float32Array((isTransposed ? columns : rows) * stride).fill(777);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      out[isTransposed ? column * stride + row : row * stride + column] = values[row * columns + column]!;
    }
  }
  return out;
}

const TILE: TensorTile = { rows: 64, columns: 32, depth: 32, groupRows: 16, groupColumns: 32 };

type Layout = { transA?: boolean; transB?: boolean; dtype?: FloatDtype; accumulate?: boolean; gap?: number };

/** How far a product is off at worst, in units of what rounding both sides to float16 may cost each of its elements. */
async function error(
  {
    m,
    n,
    k,
    transA = false,
    transB = false,
    dtype,
    accumulate = false,
    gap = 0,
  }: Layout & { m: number; n: number; k: number },
  { tile = TILE, parts = 1, left = randomFloats(m * k, 1), right = randomFloats(n * k, 2) } = {},
): Promise<number> {
  const mark = kernels.mark();
  // left is [m, k] and right [n, k] here, whatever way they are stored.
  const [lda, ldb, ldc] = [(transA ? m : k) + gap, (transB ? k : n) + gap, n + gap];
  const a = put(kernels, stored(left, m, k, transA, lda));
  let b: F32 | Frozen;
  if (dtype) {
    const bytes = fromFloat32(transB ? transposed(right, n, k) : right, dtype);
    const shape = transB ? [k, n] : [n, k];
    b = kernels.frozen(shape[1]!, shape[0]!, dtype);
    await kernels.fill(b, 0, { dtype, shape, bytes });
    const values = toFloat32(bytes, dtype, "b");
    right = transB ? transposed(values, k, n) : values;
  } else {
    b = put(kernels, stored(right, n, k, !transB, ldb));
  }
  const before = randomFloats(m * ldc, 3);
  const c = put(kernels, before);
  const product: Product = {
    c,
    a,
    b,
    m,
    n,
    k,
    transA,
    transB,
    accumulate,
    ldc,
    lda,
    ...(dtype ? {} : { ldb }),
  };
  multiplyOnTensorCores(context, product, { tile, parts });
  const actual = await kernels.download(c);
  kernels.release(mark);
  let worst = 0;
  for (let row = 0; row < m; row++) {
    for (let column = 0; column < ldc; column++) {
      const at = row * ldc + column;
      if (column >= n) {
        expect(actual[at], `beyond the end of row ${row}`).toBe(before[at]);
        continue;
      }
      let [sum, size] = [accumulate ? before[at]! : 0, 0];
      for (let i = 0; i < k; i++) {
        const term = left[row * k + i]! * right[column * k + i]!;
        sum += term;
        size += Math.abs(term);
      }
      const allowed = 2 ** -10 * size + 2 ** -22 * Math.abs(sum);
      const off = Math.abs(actual[at]! - sum) / allowed;
      if (actual[at] !== sum) worst = Number.isNaN(off) ? Number.POSITIVE_INFINITY : Math.max(worst, off);
    }
  }
  return worst;
}

describe("products on tensor cores", () => {
  it.each<Layout>([
    { dtype: "BF16" },
    { dtype: "BF16", transB: true, accumulate: true },
    { dtype: "F16", transB: true },
    { dtype: "F32" },
    { dtype: "F32", transB: true },
    { gap: 1 },
    { transB: true, gap: 3, accumulate: true },
    { transA: true, gap: 5 },
  ])("of ragged sizes: %j", async (layout) => {
    expect(await error({ m: 70, n: 83, k: 45, ...layout })).toBeLessThan(1);
  });

  it.each([
    [1, 1, 1],
    [64, 128, 96],
    [200, 33, 130],
  ])("of %i x %i x %i", async (m, n, k) => {
    expect(await error({ m, n, k, dtype: "BF16" })).toBeLessThan(1);
    expect(await error({ m, n, k, dtype: "BF16", transB: true })).toBeLessThan(1);
  });

  it.each<Partial<TensorTile>>([
    { groupRows: 32, groupColumns: 16 },
    { groupRows: 32, depth: 16 },
  ])("in tiles of another kind: %j", async (tile) => {
    const shape = { m: 150, n: 140, k: 100, dtype: "BF16", transB: true } as const;
    expect(await error(shape, { tile: { ...TILE, ...tile } })).toBeLessThan(1);
  });

  it("with k in parts", async () => {
    const shape = { m: 65, n: 70, k: 300, gap: 2 };
    expect(await error({ ...shape, accumulate: true }, { parts: 3 })).toBeLessThan(1);
    expect(await error({ ...shape, dtype: "BF16", transB: true }, { parts: 4 })).toBeLessThan(1);
  });

  it.each([1e-30, 1e-8, 1e-6, 1e4, 1e30])(
    "of values around %d are as exact as those around 1",
    async (size) => {
      const left = randomFloats(64 * 64, 4).map((value) => value * size);
      // One row is larger by far: it must not cost the others anything.
      left.subarray(0, 64).forEach((value, index, row) => {
        row[index] = value * 1e6;
      });
      expect(await error({ m: 64, n: 64, k: 64, dtype: "BF16" }, { left })).toBeLessThan(1);
      expect(await error({ m: 64, n: 64, k: 64, gap: 1 }, { right: left })).toBeLessThan(1);
    },
  );

  it("of a row with zeros alone, and of one that is infinite, leave the others alone", async () => {
    const left = randomFloats(64 * 64, 4);
    left.fill(0, 0, 64);
    left[64] = Number.POSITIVE_INFINITY;
    const [a, c] = [put(kernels, left), kernels.alloc(64 * 64)];
    const b = put(kernels, randomFloats(64 * 64, 5));
    multiplyOnTensorCores(context, { c, a, b, m: 64, n: 64, k: 64 }, { tile: TILE, parts: 1 });
    const rows = await kernels.download(c);
    expect(rows.subarray(0, 64).every((value) => value === 0)).toBe(true);
    expect(rows.subarray(64, 128).some(Number.isFinite)).toBe(false);
    expect(rows.subarray(128).every(Number.isFinite)).toBe(true);
  });
});

describe("a side in float16", () => {
  // Rows that threads hold, by teams of two sizes, and rows that are read twice.
  it.each([
    [70, 24],
    [3, 2101],
    [3, 9000],
  ])("of %i rows of %i", async (outer, k) => {
    const x = randomFloats(outer * k, 6);
    x[k + 5] = 1e5;
    const layout = { contiguous: "k", dtype: "f32", isVector: k % 4 === 0 } as const;
    const operand = { handle: put(kernels, x), layout, stride: k };
    const shape = { outer, k, rowMultiple: 64, columnMultiple: 32 };
    const { values, scales, rows, columns } = packHalf(kernels, operand, shape);
    const [words, factors] = [await kernels.download(values), await kernels.download(scales)];
    const bytes = new Uint8Array(words.buffer, 0, 2 * rows * columns);
    const halves = toFloat32(bytes, "F16", "values");
    const off = halves.findIndex((half, index) => {
      const [row, column] = [Math.floor(index / columns), index % columns];
      const expected = row < outer && column < k ? x[row * k + column]! : 0;
      const largest = row === 1 ? 1e5 : 1;
      return !(
        Math.abs(half * factors[row]! - expected) <=
        2 ** -11 * Math.abs(expected) + 2 ** -39 * largest
      );
    });
    expect(off).toBe(-1);
  });
});

describe("the choice of tensor cores", () => {
  function isOnTensorCores(precision: GpuPrecision, m: number, n: number, k: number): boolean {
    const names: string[] = [];
    const on = Object.assign(withEmulatedMatrices(kernels), {
      gpu: { ...kernels.gpu, precision },
      queue: { run: ({ name }: Shader) => names.push(name) },
    }) as unknown as GpuContext;
    const buffer = kernels.alloc(Math.max(m * n, m * k, n * k));
    const mark = kernels.mark();
    multiplyMatrices(on, { a: buffer, b: buffer, c: buffer, m, n, k });
    kernels.release(mark);
    kernels.free(buffer);
    return names.some((name) => name.startsWith("tensor-product"));
  }

  it("leaves products with few rows or columns, and all of exact precision, to the others", () => {
    expect(isOnTensorCores("fast", 512, 512, 512)).toBe(true);
    expect(isOnTensorCores("exact", 512, 512, 512)).toBe(false);
    expect(isOnTensorCores("fast", 8, 4096, 1024)).toBe(false);
    expect(isOnTensorCores("fast", 4096, 32, 1024)).toBe(false);
  });

  it("leaves the products of LoRA to the others: the way to float16 costs more than it saves", () => {
    expect(planTensorProduct(8192, 96, 1024, 48 << 10)).toBeUndefined();
    expect(planTensorProduct(8192, 1024, 96, 48 << 10)).toBeUndefined();
    expect(planTensorProduct(16, 4096, 4096, 48 << 10)).toBeUndefined();
  });

  it("cuts large products into large tiles, and those with few large tiles along k", () => {
    expect(planTensorProduct(8192, 4096, 1024, 48 << 10)).toMatchObject({ tile: { rows: 128 }, parts: 1 });
    const head = planTensorProduct(883, 1024, 151_936, 48 << 10)!;
    expect(head.tile.rows).toBe(128);
    expect(head.parts).toBeGreaterThan(4);
    expect(planTensorProduct(128, 256, 1024, 48 << 10)).toMatchObject({ tile: { rows: 64 } });
  });

  it("holds to what a card binds at once and to its workgroup memory", () => {
    const { parts } = planTensorProduct(7 * 128, 19 * 128, 200_000, 48 << 10)!;
    expect(parts).toBeGreaterThan(1);
    expect(4 * parts * 7 * 128 * 19 * 128).toBeLessThanOrEqual(128 << 20);
    expect(planTensorProduct(8192, 4096, 1024, 32 << 10)).toMatchObject({ tile: { rows: 64 } });
    expect(planTensorProduct(8192, 4096, 1024, 16 << 10)).toBeUndefined();
  });
});
