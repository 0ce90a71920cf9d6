import { afterAll, describe, it } from "vitest";
import { compare, openKernels, random } from "../gpus.js";

const kernels = await openKernels();
afterAll(() => kernels.close());

describe("rmsNorm", () => {
  it.each([
    [1, 1],
    [3, 7],
    [5, 64],
    [40, 30],
    [300, 257],
  ])("of %i rows of %i", async (rows, cols) => {
    await compare(kernels, 2e-6, (on) => {
      const [x, weight] = [random(on, rows * cols, 1), random(on, cols, 2)];
      const [out, rstd] = [on.alloc(rows * cols), on.alloc(rows)];
      on.rmsNorm({ out, rstd, x, weight, rows, cols, eps: 1e-5 });
      return [out, rstd];
    });
  });
});
