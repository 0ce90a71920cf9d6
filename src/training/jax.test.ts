import { describe, expect, it } from "vitest";
import { Datum } from "../wire/index.js";
import { add, exp, mul, stack, sum, tensor, variable } from "./autograd/index.js";
import { evaluateCustomLoss } from "./custom-loss.js";
import { type JaxModule, jaxLoss } from "./jax.js";

/** An array as jax-js has them, as far as the adapter looks. */
class FakeArray {
  readonly values: Float32Array;
  readonly shape: number[];
  disposed = false;
  constructor(values: Float32Array, shape: number[] = [values.length]) {
    this.values = values;
    this.shape = shape;
  }
  get size() {
    return this.values.length;
  }
  reshape(shape: number[]) {
    return new FakeArray(this.values, shape);
  }
  async data() {
    if (this.disposed) throw new Error("used after it was given back");
    this.disposed = true;
    return this.values;
  }
}

/** Differentiates every function as sum(x^2), and keeps what it was given. */
function fakeJax() {
  const seen: FakeArray[] = [];
  const jax: JaxModule = {
    numpy: { array: (values) => new FakeArray(values) },
    valueAndGrad: (lossFn, { hasAux }) => {
      expect(hasAux).toBe(true);
      return (...inputs) => {
        const [arrays] = inputs as unknown as [FakeArray[]];
        seen.push(...arrays);
        const output = (lossFn as (arrays: FakeArray[]) => unknown)(arrays);
        return [output, arrays.map((each) => new FakeArray(each.values.map((x) => 2 * x)))];
      };
    },
  };
  return { jax, seen };
}

const one = (value: number) => new FakeArray(new Float32Array([value]), []);
const data = [2, 4].map(
  (length) =>
    new Datum({
      modelInput: Array.from({ length: Math.min(length, 2) }, () => 1),
      lossFnInputs: {
        targetTokens: { data: new Int32Array(length), shape: length === 2 ? [2] : [2, 2], dtype: "int64" },
      },
    }),
);
const logprobs = () => [
  variable([-1, -2], { label: "data[0].logprobs" }),
  variable(tensor([-0.5, -1, -1.5, -2], [2, 2]), { label: "data[1].logprobs" }),
];

describe("jaxLoss", () => {
  it("hands over arrays in the shapes of the logprobs, and reads loss, metrics and gradients", async () => {
    const { jax, seen } = fakeJax();
    const lossFn = jaxLoss<FakeArray>(
      (given, arrays) => {
        expect(given).toBe(data);
        expect(arrays.map(({ shape }) => shape)).toEqual([[2], [2, 2]]);
        return { loss: one(7), metrics: { count: one(2) } };
      },
      { jax },
    );
    const evaluated = await evaluateCustomLoss(lossFn, data, logprobs());
    expect(evaluated.loss).toBe(7);
    expect(evaluated.metrics).toEqual({ count: 2 });
    expect(evaluated.gradients.map((each) => [...each])).toEqual([
      [-2, -4],
      [-1, -2, -3, -4],
    ]);
    expect(seen).toHaveLength(2);
  });

  it("takes a bare loss, and refuses one of several elements", async () => {
    const { jax } = fakeJax();
    expect(
      (
        await evaluateCustomLoss(
          jaxLoss<FakeArray>(() => one(3), { jax }),
          data,
          logprobs(),
        )
      ).loss,
    ).toBe(3);
    const wide = jaxLoss<FakeArray>((_, [first]) => first!, { jax });
    await expect(evaluateCustomLoss(wide, data, logprobs())).rejects.toThrow(
      "The loss of a jax-js function must have one element, got 2.",
    );
  });
});

interface RealArray {
  readonly ref: RealArray;
  add(other: RealArray): RealArray;
  mul(other: RealArray): RealArray;
}
type RealJax = JaxModule & {
  numpy: { sum(array: RealArray): RealArray; exp(array: RealArray): RealArray };
};

// Another copy than an installed one can be named in the environment.
const specifier: string = process.env["JAX_JS"] ?? "@jax-js/jax";
const jax = (await import(specifier).catch(() => undefined)) as RealJax | undefined;
if (jax === undefined) console.log(`skipped: ${specifier}, an optional peer, is not installed`);

describe.skipIf(jax === undefined)("the real jax-js", () => {
  it("gives the gradients that the built-in autograd gives", async () => {
    const { numpy } = jax!;
    const theirs = jaxLoss<RealArray>(
      (_, arrays) => {
        const parts = arrays.map((each) => numpy.sum(numpy.exp(each.ref)).add(numpy.sum(each.ref.mul(each))));
        const loss = parts.reduce((total, each) => total.add(each));
        return { loss: loss.ref, metrics: { "again:sum": loss } };
      },
      { jax },
    );
    const ours = (_: unknown, tensors: ReturnType<typeof logprobs>) => ({
      loss: sum(stack(tensors.map((each) => add(sum(exp(each)), sum(mul(each, each)))))),
    });
    const expected = await evaluateCustomLoss(ours as never, data, logprobs());
    const found = await evaluateCustomLoss(theirs, data, logprobs());
    expect(found.loss).toBeCloseTo(expected.loss, 5);
    expect(found.metrics["again:sum"]).toBeCloseTo(expected.loss, 5);
    for (const [index, gradient] of expected.gradients.entries()) {
      for (const [position, value] of gradient.entries()) {
        expect(found.gradients[index]![position]).toBeCloseTo(value, 5);
      }
    }
  });
});
