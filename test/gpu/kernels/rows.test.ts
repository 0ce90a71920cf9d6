import { afterAll, describe, expect, it } from "vitest";
import { toFloat32 } from "../../../src/checkpoints/safetensors.js";
import type { Kernels } from "../../../src/local/engine/kernels/kernels.js";
import { put, randomFloats } from "../../../src/local/engine/kernels/test-support.js";
import { gatherRows } from "../../../src/local/engine/kernels/webgpu/gather-rows.js";
import { compare, compareTwice, ints, openKernels, random, withSmallBindings } from "../gpus.js";

const kernels = await openKernels();
afterAll(() => kernels.close());

describe("rmsNorm", () => {
  const bothWays = (rows: number, cols: number, skip: number) => (on: Kernels) => {
    const [x, weight] = [random(on, rows * cols, 1, skip), random(on, cols, 2)];
    const [dout, dx, dweight] = [random(on, rows * cols, 3), random(on, rows * cols, 4), random(on, cols, 5)];
    const [out, rstd] = [on.alloc(rows * cols), on.alloc(rows)];
    on.rmsNorm({ out, rstd, x, weight, rows, cols, eps: 1e-5 });
    on.rmsNormBackward({ dx, dweight, dout, x, rstd, weight, rows, cols });
    return [out, rstd, dx, dweight];
  };

  it.each([
    [1, 1, 0],
    [3, 7, 0],
    [5, 64, 0],
    [5, 64, 1],
    [40, 30, 0],
    [300, 257, 0],
    [2, 1500, 0],
  ])("of %i rows of %i, %i after an aligned place, and its gradients", async (rows, cols, skip) => {
    await compare(kernels, 2e-6, bothWays(rows, cols, skip));
  });

  it("leaves out the weight's gradient if it is not needed", async () => {
    await compare(kernels, 2e-6, (on) => {
      const [x, weight] = [random(on, 36, 1), random(on, 12, 2)];
      const [dout, dx, rstd] = [random(on, 36, 3), random(on, 36, 4), random(on, 3, 5)];
      on.rmsNormBackward({ dx, dout, x, rstd, weight, rows: 3, cols: 12 });
      return [dx];
    });
  });

  it("gives the same bits again", () => compareTwice(kernels, bothWays(300, 257, 0)));
});

describe("swiglu", () => {
  it.each([
    [1, 3, 0],
    [7, 13, 0],
    [9, 300, 0],
    [9, 300, 2],
  ])(
    "of %i rows of %i, %i after an aligned place, and its gradient, also far out",
    async (rows, cols, skip) => {
      await compare(kernels, 1e-6, (on) => {
        const gateUp = random(on, 2 * rows * cols, 1, skip);
        on.scale(gateUp, 4);
        const far = put(
          on,
          randomFloats(rows, 2).map((value) => 120 * value),
        );
        on.scatterRows(gateUp, { data: far, stride: 1 }, ints(on, farPlaces(rows, cols)), rows, 1);
        const dout = random(on, rows * cols, 3);
        const [out, dgateUp] = [on.alloc(rows * cols), on.alloc(2 * rows * cols)];
        on.swiglu(out, gateUp, rows, cols);
        on.swigluBackward(dgateUp, dout, gateUp, rows, cols);
        return [out, dgateUp];
      });
    },
  );
});

/** A place of its own for every row's value far out. */
const farPlaces = (rows: number, cols: number) =>
  Array.from({ length: rows }, (_, row) => row * (2 * cols - 1));

describe("gatherRows, scatterRows and scatterAddRows", () => {
  const moves = (rows: number, cols: number, skip: number) => (on: Kernels) => {
    const indices = ints(
      on,
      Array.from({ length: rows }, (_, row) => (row * row) % 9),
    );
    const places = ints(
      on,
      Array.from({ length: rows }, (_, row) => rows - 1 - row),
    );
    const [table, sums] = [random(on, 9 * cols, 1, skip), random(on, 9 * cols, 2)];
    const [stored, x] = [random(on, rows * cols, 3), random(on, rows * (cols + 4), 4, skip)];
    const out = on.alloc(rows * cols);
    on.gatherRows(out, table, indices, rows, cols);
    on.scatterAddRows(sums, out, indices, rows, cols);
    on.scatterRows(stored, { data: x, stride: cols + 4 }, places, rows, cols);
    return [out, sums, stored];
  };

  it.each([
    [1, 1, 0],
    [6, 5, 0],
    [6, 8, 0],
    [6, 8, 3],
    [200, 72, 0],
  ])("of %i rows of %i, %i after an aligned place, equal to the last bit", async (rows, cols, skip) => {
    await compare(kernels, 1e-30, moves(rows, cols, skip));
  });

  it("add in the same order again", () => compareTwice(kernels, moves(200, 72, 0)));
});

describe("gatherRows from frozen weights", () => {
  it.each([
    ["F32", 12],
    ["BF16", 12],
    ["F16", 12],
    ["F32", 7],
    ["BF16", 7],
    ["F16", 7],
  ] as const)("in %s with rows of %i", async (dtype, cols) => {
    const outputs = 5;
    const values = randomFloats(outputs * cols, 1);
    const words =
      dtype === "F32"
        ? values
        : dtype === "BF16"
          ? Uint16Array.from(new Uint32Array(values.buffer), (bits) => bits >>> 16)
          : Uint16Array.from({ length: values.length }, (_, i) => 0x2c00 + 97 * i + (i % 2) * 0x8000);
    const bytes = new Uint8Array(words.buffer);
    const expected = toFloat32(bytes, dtype, "a table");
    const table = kernels.frozen(cols, outputs, dtype);
    await kernels.fill(table, 0, { dtype, shape: [outputs, cols], bytes });
    const indices = [4, 0, 2, 4];
    const [whole, parts] = [kernels.alloc(indices.length * cols), kernels.alloc(indices.length * cols)];
    kernels.gatherRows(whole, table, ints(kernels, indices), indices.length, cols);
    gatherRows(withSmallBindings(kernels, 400), parts, table, ints(kernels, indices), indices.length, cols);
    for (const out of [whole, parts]) {
      expect(Array.from(await kernels.download(out))).toEqual(
        indices.flatMap((index) => Array.from(expected.subarray(index * cols, (index + 1) * cols))),
      );
    }
  });
});
