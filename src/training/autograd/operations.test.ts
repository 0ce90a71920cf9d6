import { describe, expect, it } from "vitest";
import type { Operand, Tensor } from "./index.js";
import * as ag from "./index.js";

/** Numbers that look random, away from 0 and from each other, the same on every run. */
function numbers(count: number, seed: number, low = -2, high = 2): number[] {
  return Array.from({ length: count }, (_, index) => {
    const wave = Math.abs(Math.sin((index + 1) * 12.9898 + seed * 78.233) * 43758.5453) % 1;
    return low + (high - low) * wave;
  });
}

const size = (shape: readonly number[]) => shape.reduce((product, each) => product * each, 1);

interface Case {
  readonly name: string;
  readonly shapes: readonly (readonly number[])[];
  readonly run: (...inputs: Tensor[]) => Tensor;
  readonly low?: number;
  readonly high?: number;
}

/** The largest difference between our gradients and central differences, for a loss that weighs every output. */
function gradientError({ shapes, run, low, high }: Case): number {
  const values = shapes.map((shape, index) => numbers(size(shape), index + 1, low, high));
  const loss = (inputs: readonly Operand[]) => {
    const output = run(...(inputs as Tensor[]));
    const weights = numbers(output.size, 99);
    return ag.sum(ag.mul(output, ag.tensor(weights, output.shape)));
  };
  const inputs = values.map((each, index) => ag.variable(ag.tensor(each, shapes[index])));
  const gradients = ag.backward(loss(inputs));
  let worst = 0;
  for (const [index, input] of inputs.entries()) {
    const found = gradients.of(input);
    expect(found.length).toBe(size(shapes[index]!));
    for (let position = 0; position < input.size; position++) {
      const step = 1e-5;
      const at = (shift: number) => {
        const moved = inputs.map((each) => Float64Array.from(each.data));
        moved[index]![position]! += shift;
        return loss(moved.map((data, each) => ag.variable({ data, shape: shapes[each]! }))).item();
      };
      const expected = (at(step) - at(-step)) / (2 * step);
      worst = Math.max(worst, Math.abs(found[position]! - expected) / Math.max(1, Math.abs(expected)));
    }
  }
  return worst;
}

const PAIRS: (readonly (readonly number[])[])[] = [
  [[3], [3]],
  [[], []],
  [[2, 3], [3]],
  [[3], [2, 3]],
  [
    [2, 1],
    [1, 3],
  ],
  [[2, 3], []],
  [[1], [4]],
  [
    [2, 1, 3],
    [4, 1],
  ],
  [
    [0, 3],
    [1, 3],
  ],
  [[0], []],
];
const SHAPES = [[], [1], [5], [2, 3], [2, 1, 3], [0], [0, 2]] as const;

const binary = { add: ag.add, sub: ag.sub, mul: ag.mul, minimum: ag.minimum, maximum: ag.maximum };
const unary = {
  neg: ag.neg,
  exp: ag.exp,
  sigmoid: ag.sigmoid,
  logSigmoid: ag.logSigmoid,
  softplus: ag.softplus,
  tanh: ag.tanh,
  abs: ag.abs,
  clamp: (x: Tensor) => ag.clamp(x, { min: -0.7, max: 0.9 }),
  clampBelow: (x: Tensor) => ag.clamp(x, { min: 0.1 }),
};
const positive = { log: ag.log, sqrt: ag.sqrt };

const cases: Case[] = [
  ...Object.entries(binary).flatMap(([name, run]) => PAIRS.map((shapes) => ({ name, shapes, run }))),
  ...PAIRS.map((shapes) => ({ name: "div", shapes, run: ag.div, low: 0.5 })),
  ...PAIRS.map((shapes) => ({ name: "pow", shapes, run: ag.pow, low: 0.3, high: 2.5 })),
  ...[2, 3, -1, 0.5, 1, 0].map((exponent) => ({
    name: `pow ${exponent}`,
    shapes: [[4]],
    run: (x: Tensor) => ag.pow(x, exponent),
    low: 0.3,
  })),
  { name: "pow of negative numbers", shapes: [[4]], run: (x) => ag.pow(x, 3), low: -2, high: -0.5 },
  ...Object.entries(unary).flatMap(([name, run]) => SHAPES.map((shape) => ({ name, shapes: [shape], run }))),
  ...Object.entries(positive).flatMap(([name, run]) =>
    SHAPES.map((shape) => ({ name, shapes: [shape], run, low: 0.2 })),
  ),
  { name: "where", shapes: [[2, 3], [3]], run: (a, b) => ag.where([[1, 0, 1]], a, b) },
  { name: "where by rows", shapes: [[], [2, 2]], run: (a, b) => ag.where([[0], [1]], a, b) },
  ...Object.entries({ sum: ag.sum, mean: ag.mean, logSumExp: ag.logSumExp }).flatMap(([name, reduce]) => {
    const options: (ag.ReduceOptions | undefined)[] = [
      undefined,
      { axis: 0 },
      { axis: 1 },
      { axis: -1, keepDims: true },
      { axis: [0, 2] },
      { axis: [1, 2] },
      { axis: [2, 0], keepDims: true },
      { axis: [0, 1, 2] },
    ];
    return [
      ...options.map((each) => ({ name, shapes: [[2, 3, 4]], run: (x: Tensor) => reduce(x, each) })),
      { name: `${name} of a scalar`, shapes: [[]], run: (x: Tensor) => reduce(x) },
      { name: `${name} of no groups`, shapes: [[0, 2]], run: (x: Tensor) => reduce(x, { axis: 1 }) },
    ];
  }),
  { name: "sum of nothing", shapes: [[0]], run: (x) => ag.sum(x) },
  ...[undefined, 0, 1, -1].map((axis) => ({
    name: "softmax",
    shapes: [[2, 3, 2]],
    run: (x: Tensor) => ag.softmax(x, { axis }),
  })),
  {
    name: "stack",
    shapes: [
      [2, 3],
      [2, 3],
    ],
    run: (a, b) => ag.stack([a, b, a]),
  },
  {
    name: "stack last",
    shapes: [
      [2, 3],
      [2, 3],
    ],
    run: (a, b) => ag.stack([a, b], { axis: -1 }),
  },
  { name: "stack scalars", shapes: [[], []], run: (a, b) => ag.stack([a, b]) },
  {
    name: "concat",
    shapes: [
      [2, 3],
      [1, 3],
      [0, 3],
    ],
    run: (...all) => ag.concat(all),
  },
  {
    name: "concat last",
    shapes: [
      [2, 3],
      [2, 1],
    ],
    run: (a, b) => ag.concat([a, b, a], { axis: -1 }),
  },
  { name: "slice", shapes: [[5]], run: (x) => ag.slice(x, 1, 4) },
  { name: "slice from the end", shapes: [[5]], run: (x) => ag.slice(x, -2) },
  { name: "slice to before the end", shapes: [[5]], run: (x) => ag.slice(x, 0, -1) },
  { name: "slice of nothing", shapes: [[5]], run: (x) => ag.slice(x, 2, 2) },
  { name: "slice columns", shapes: [[2, 4, 2]], run: (x) => ag.slice(x, 1, 3, { axis: 1 }) },
  { name: "gather", shapes: [[4]], run: (x) => ag.gather(x, [3, 0, 3]) },
  { name: "gather columns", shapes: [[2, 3]], run: (x) => ag.gather(x, [[2], [0]]) },
  { name: "gather rows", shapes: [[3, 2]], run: (x) => ag.gather(x, [[2, 0]], { axis: 0 }) },
  { name: "reshape", shapes: [[2, 6]], run: (x) => ag.reshape(x, [3, -1]) },
  {
    name: "matmul",
    shapes: [
      [2, 3],
      [3, 4],
    ],
    run: ag.matmul,
  },
  { name: "matmul of one with itself", shapes: [[2, 3]], run: (x) => ag.matmul(x, ag.transpose(x)) },
  { name: "a tensor used twice", shapes: [[3]], run: (x) => ag.mul(ag.exp(x), ag.add(x, x)) },
  {
    name: "fromGradients",
    shapes: [[2], [3]],
    // d(a0*a1 + sum(b^2)) worked out by hand.
    run: (a, b) =>
      ag.fromGradients(
        a.data[0]! * a.data[1]! + b.data.reduce((total, each) => total + each * each, 0),
        [a, b],
        [[a.data[1]!, a.data[0]!], b.data.map((each) => 2 * each)],
      ),
  },
];

describe("gradients agree with finite differences", () => {
  it.each(cases.map((each) => [`${each.name} ${JSON.stringify(each.shapes)}`, each] as const))(
    "%s",
    (_, each) => {
      expect(gradientError(each)).toBeLessThan(1e-8);
    },
  );

  it.each(cases.map((each) => [`${each.name} ${JSON.stringify(each.shapes)}`, each] as const))(
    "%s, the same for 32-bit values read in place",
    (_, { shapes, run, low, high }) => {
      const arrays = shapes.map((shape, index) =>
        Float32Array.from(numbers(size(shape), index + 1, low, high)),
      );
      const [narrow, wide] = [arrays, arrays.map((each) => Float64Array.from(each))].map((held) => {
        const inputs = held.map((data, index) => ag.variable({ data, shape: shapes[index]! }));
        const output = run(...inputs);
        const gradients = ag.backward(ag.sum(ag.mul(output, output)));
        return [output.toArray(), output.shape, ...inputs.map((each) => [...gradients.of(each)])];
      });
      expect(narrow).toEqual(wide);
    },
  );

  it("and a wrong gradient would be seen", () => {
    const wrong: Case = {
      name: "wrong",
      shapes: [[2]],
      run: (x) => ag.fromGradients(x.data[0]! ** 2, [x], [[x.data[0]!, 0]]),
    };
    expect(gradientError(wrong)).toBeGreaterThan(1e-3);
  });
});

describe("values", () => {
  const values = (tensor: Tensor) => tensor.toArray();

  it("broadcast as NumPy does", () => {
    const sum = ag.add(ag.tensor([[1], [2]]), ag.tensor([[10, 20, 30]]));
    expect(sum.shape).toEqual([2, 3]);
    expect(values(sum)).toEqual([11, 21, 31, 12, 22, 32]);
  });

  it("are exact where the plain formula overflows", () => {
    expect(values(ag.logSigmoid([-1000, 1000]))).toEqual([-1000, -0]);
    expect(values(ag.softplus([1000, -1000]))).toEqual([1000, 0]);
    expect(values(ag.sigmoid([-1000, 1000]))).toEqual([0, 1]);
    expect(ag.logSumExp([1000, 1000]).item()).toBeCloseTo(1000 + Math.log(2), 12);
    expect(values(ag.softmax([1000, 0]))).toEqual([1, 0]);
    expect(ag.logSumExp([Number.NEGATIVE_INFINITY, 0]).item()).toBe(0);
  });

  it("follow the axes", () => {
    const matrix = ag.tensor([
      [1, 2, 3],
      [4, 5, 6],
    ]);
    expect(values(ag.sum(matrix, { axis: 0 }))).toEqual([5, 7, 9]);
    expect(values(ag.mean(matrix, { axis: 1 }))).toEqual([2, 5]);
    expect(ag.sum(matrix, { axis: 1, keepDims: true }).shape).toEqual([2, 1]);
    expect(values(ag.gather(matrix, [[2], [0]]))).toEqual([3, 4]);
    expect(
      values(
        ag.stack(
          [
            [1, 2],
            [3, 4],
          ],
          { axis: 1 },
        ),
      ),
    ).toEqual([1, 3, 2, 4]);
    expect(values(ag.slice(matrix, 1, 3, { axis: 1 }))).toEqual([2, 3, 5, 6]);
    expect(values(ag.transpose(matrix))).toEqual([1, 4, 2, 5, 3, 6]);
  });

  it("come from whatever holds numbers", () => {
    expect(values(ag.tensor(new Int32Array([1, 2])))).toEqual([1, 2]);
    expect(
      ag.tensor([
        [1, 2],
        [3, 4],
      ]).shape,
    ).toEqual([2, 2]);
    expect(ag.tensor({ data: [1, 2], shape: [2, 1] }).shape).toEqual([2, 1]);
    expect(ag.tensor(7).item()).toBe(7);
    expect(ag.tensor({ data: new Float32Array([0.5]) }).data).toEqual(new Float64Array([0.5]));
  });

  it("of a bare 32-bit array are copied, so that it may be refilled", () => {
    const x = ag.variable([1, 2]);
    const scratch = new Float32Array(2);
    const parts = [3, 4].map((value) => ag.sum(ag.mul(x, scratch.fill(value))));
    expect([...ag.backward(ag.sum(ag.stack(parts))).of(x)]).toEqual([7, 7]);
  });
});

describe("at the corners", () => {
  const gradient = (value: number, run: (x: Tensor) => Tensor) => {
    const x = ag.variable(value);
    return ag.backward(run(x)).of(x)[0];
  };

  it("gradients are those documented", () => {
    expect(gradient(0, ag.abs)).toBe(0);
    expect(gradient(1, (x) => ag.clamp(x, { max: 1 }))).toBe(1);
    expect(gradient(1.1, (x) => ag.clamp(x, { max: 1 }))).toBe(0);
    expect(gradient(1, (x) => ag.minimum(x, 1))).toBe(0.5);
    expect(gradient(1, (x) => ag.maximum(1, x))).toBe(0.5);
    expect(gradient(0, (x) => ag.pow(x, 0))).toBe(0);
    expect(gradient(0, (x) => ag.pow(x, 2))).toBe(0);
    expect(gradient(0, (x) => ag.pow(0, x))).toBe(0);
    expect(gradient(3, (x) => ag.mul(x, ag.stopGradient(x)))).toBe(3);
  });

  it("an infinite logprob that the loss masks does no harm", () => {
    const x = ag.variable([Number.NEGATIVE_INFINITY, -1]);
    expect([...ag.backward(ag.logSumExp(x)).of(x)]).toEqual([0, 1]);
    expect([...ag.backward(ag.sum(ag.where([0, 1], x, 0))).of(x)]).toEqual([0, 1]);
  });
});
