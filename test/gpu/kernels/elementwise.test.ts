import { afterAll, describe, expect, it } from "vitest";
import { type F32, type Kernels, sliceBuffer } from "../../../src/local/engine/kernels/kernels.js";
import { put, randomFloats } from "../../../src/local/engine/kernels/test-support.js";
import { addBuffers, sumSquares } from "../../../src/local/engine/kernels/webgpu/elementwise.js";
import { createReferenceKernels } from "../../engine/reference-kernels.js";
import { compare, compareTwice, openKernels, random, withSmallBindings } from "../gpus.js";

const kernels = await openKernels();
afterAll(() => kernels.close());

const LENGTHS: [length: number, skip: number][] = [
  [1, 0],
  [6, 0],
  [4096, 0],
  [5003, 0],
  [5003, 1],
];

describe("whole buffers", () => {
  it.each(LENGTHS)("of %i values, %i after an aligned place", async (length, skip) => {
    await compare(kernels, 1e-7, (on) => {
      const [a, b] = [random(on, length, 1, skip), random(on, length, 2, skip)];
      const [sum, twin, zeroed] = [random(on, length, 3, skip), random(on, length, 4), random(on, length, 5)];
      on.add(sum, a, b);
      on.copy(twin, sum);
      on.addScaled(twin, a, -0.3);
      on.scale(twin, 1.7);
      on.zero(zeroed);
      return [sum, twin, zeroed];
    });
  });

  it("are added in place on either side, and to themselves", async () => {
    await compare(kernels, 1e-7, (on) => {
      const [first, second, other] = [random(on, 101, 1), random(on, 101, 2), random(on, 101, 3)];
      const [twice, doubled] = [random(on, 101, 4), random(on, 101, 5)];
      on.add(first, first, other);
      on.add(second, other, second);
      on.add(twice, twice, twice);
      on.add(doubled, other, other);
      return [first, second, other, twice, doubled];
    });
  });

  it("are passed over a part at a time where they cannot be bound as a whole", async () => {
    const values = randomFloats(201, 1);
    const [x, out, zeros] = [put(kernels, values), kernels.alloc(201), kernels.alloc(201)];
    const context = withSmallBindings(kernels, 512);
    addBuffers(context, out, x, zeros);
    expect(await kernels.download(out)).toEqual(values);
    expect(await sumSquares(context, x)).toBeCloseTo(await kernels.sumSquares(x), 4);
  });

  it("leave what lies around them alone", async () => {
    await compare(kernels, 1e-7, (on) => {
      const whole = random(on, 64, 1);
      on.scale(sliceBuffer(whole, 4, 7), 3);
      on.zero(sliceBuffer(whole, 16, 1));
      on.copy(sliceBuffer(whole, 33, 6), sliceBuffer(whole, 20, 6));
      return [whole];
    });
  });
});

describe("adamw", () => {
  const settings = { learningRate: 1e-3, beta1: 0.9, beta2: 0.95, weightDecay: 0.1, gradScale: 0.7 };

  const threeSteps = (length: number, skip: number, eps: number) => (on: Kernels) => {
    const [weights, gradient] = [random(on, length, 1, skip), random(on, length, 2, skip)];
    const [first, second] = [on.alloc(length), on.alloc(length)];
    for (let step = 1; step <= 3; step++) {
      on.adamw(weights, gradient, first, second, { ...settings, eps, step });
    }
    return [weights, first, second];
  };

  it.each(LENGTHS)("of %i values, %i after an aligned place", async (length, skip) => {
    await compare(kernels, 1e-6, threeSteps(length, skip, 1e-8));
  });

  it("gives the same bits again", () => compareTwice(kernels, threeSteps(5003, 0, 1e-8)));

  it("takes a step of bounded size where gradients are tiny and eps is zero", async () => {
    const weights = put(kernels, Float32Array.of(1, 1, 1, 1));
    const gradient = put(kernels, Float32Array.of(0, 1e-25, -1e-20, 1e-15));
    const [first, second] = [kernels.alloc(4), kernels.alloc(4)];
    const step = { ...settings, weightDecay: 0, gradScale: 1, eps: 0, step: 1 };
    kernels.adamw(weights, gradient, first, second, step);
    for (const value of await kernels.download(weights)) expect(Math.abs(value - 1)).toBeLessThan(1.1e-3);
    expect((await kernels.download(weights))[3]).toBeCloseTo(1 - 1e-3, 6);
  });
});

describe("sumSquares", () => {
  const reference = createReferenceKernels();

  async function expectSum(values: Float32Array, skip: number): Promise<void> {
    const handle = (on: Kernels): F32 => sliceBuffer(put(on, values), skip, values.length - skip);
    const expected = await reference.sumSquares(handle(reference));
    const actual = await kernels.sumSquares(handle(kernels));
    expect(Math.abs(actual / expected - 1)).toBeLessThan(1e-6);
    expect(await kernels.sumSquares(handle(kernels))).toBe(actual);
  }

  it("is exact enough for values of very different sizes", async () => {
    const sizes = randomFloats(1_000_003, 2);
    const values = randomFloats(1_000_003, 1).map((value, i) => value * 10 ** (6 * sizes[i]!));
    await expectSum(values, 0);
  });

  it("does not lose small values beside their sum", () => expectSum(new Float32Array(300_001).fill(0.1), 0));

  it("begins anywhere", () => expectSum(randomFloats(9001, 3), 3));

  it("of nothing is zero", async () => {
    expect(await kernels.sumSquares(sliceBuffer(kernels.alloc(4), 2, 0))).toBe(0);
  });
});
