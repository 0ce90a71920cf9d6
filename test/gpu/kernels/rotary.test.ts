import { afterAll, describe, it } from "vitest";
import { from, type Kernels } from "../../../src/local/engine/kernels/kernels.js";
import { put, randomFloats } from "../../../src/local/engine/kernels/test-support.js";
import { compare, compareTwice, ints, openKernels, random } from "../gpus.js";

const kernels = await openKernels();
afterAll(() => kernels.close());

interface Shape {
  rows: number;
  heads: number;
  headDim: number;
  /** Columns before the heads' in rows that hold more than them. */
  before: number;
  isNormed: boolean;
}

const bothWays =
  ({ rows, heads, headDim, before, isNormed }: Shape) =>
  (on: Kernels) => {
    const stride = before + heads * headDim + 8;
    const rowsOf = (seed: number) => ({ data: from(random(on, rows * stride, seed), before), stride });
    const [x, dout, out, dx] = [rowsOf(1), rowsOf(2), rowsOf(3), rowsOf(4)];
    const weight = isNormed ? random(on, headDim, 5) : undefined;
    const rstd = isNormed ? on.alloc(rows * heads) : undefined;
    const dweight = isNormed ? random(on, headDim, 6) : undefined;
    const radians = randomFloats(16 * (headDim / 2), 7);
    const angles = {
      cos: put(on, radians.map(Math.cos)),
      sin: put(on, radians.map(Math.sin)),
      positions: ints(
        on,
        Array.from({ length: rows }, (_, row) => (row * 5) % 16),
      ),
    };
    const shared = { x, rstd, weight, angles, rows, heads, headDim };
    on.normRope({ ...shared, out, eps: 1e-6 });
    on.normRopeBackward({ ...shared, dx, dweight, dout });
    return [out.data, dx.data, ...(rstd && dweight ? [rstd, dweight] : [])];
  };

describe("normRope and its gradients", () => {
  for (const isNormed of [true, false]) {
    it.each([
      [1, 1, 2, 0],
      [5, 2, 6, 0],
      [20, 3, 32, 12],
      [20, 3, 32, 5],
      [70, 4, 64, 0],
      [9, 2, 80, 0],
      [3, 2, 300, 0],
    ])(
      `of %i rows of %i heads of %i from column %i, normed: ${isNormed}`,
      async (rows, heads, headDim, before) => {
        await compare(kernels, 3e-6, bothWays({ rows, heads, headDim, before, isNormed }));
      },
    );
  }

  it("have the same bits again", async () => {
    await compareTwice(kernels, bothWays({ rows: 70, heads: 4, headDim: 64, before: 0, isNormed: true }));
  });
});

describe("rotateIntoPages", () => {
  it.each([
    [1, 2, 1, 8, true],
    [5, 4, 2, 16, true],
    [7, 3, 3, 6, false],
  ])(
    "of %i rows, %i heads, %i of keys, size %i, normed: %s",
    async (rows, heads, kvHeads, headDim, isNormed) => {
      const width = (heads + 2 * kvHeads) * headDim;
      const slotRows = 3 * rows;
      await compare(kernels, 2e-6, (on) => {
        const qkv = random(on, rows * width, 1);
        const [cos, sin] = [random(on, 40 * (headDim / 2), 2), random(on, 40 * (headDim / 2), 3)];
        const positions = ints(
          on,
          Array.from({ length: rows }, (_, row) => (row * 7) % 40),
        );
        const slots = ints(
          on,
          Array.from({ length: rows }, (_, row) => slotRows - 1 - 2 * row),
        );
        const query = { data: on.alloc(rows * heads * headDim), stride: heads * headDim };
        const [keyPages, valuePages] = [4, 5].map((seed) => random(on, slotRows * kvHeads * headDim, seed));
        on.rotateIntoPages({
          query,
          keyPages: keyPages!,
          valuePages: valuePages!,
          slots,
          projected: {
            query: { data: qkv, stride: width },
            key: { data: from(qkv, heads * headDim), stride: width },
            value: { data: from(qkv, (heads + kvHeads) * headDim), stride: width },
          },
          rotation: {
            queryNorm: isNormed ? random(on, headDim, 6) : undefined,
            keyNorm: isNormed ? random(on, headDim, 7) : undefined,
            angles: { cos, sin, positions },
            rows,
            heads,
            kvHeads,
            headDim,
            eps: 1e-5,
          },
        });
        return [query.data, keyPages!, valuePages!];
      });
    },
  );
});
