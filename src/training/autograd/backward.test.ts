import { describe, expect, it } from "vitest";
import {
  add,
  backward,
  clamp,
  concat,
  exp,
  fromGradients,
  gather,
  log,
  matmul,
  mean,
  mul,
  reshape,
  slice,
  sqrt,
  stack,
  stopGradient,
  sub,
  sum,
  type Tensor,
  tensor,
  variable,
  where,
} from "./index.js";

const logprobs = (index: number, values: number[]) => variable(values, { label: `data[${index}].logprobs` });

describe("backward", () => {
  it("leaves the graph as it was, so it can be gone through again", () => {
    const x = variable([1, 2]);
    const loss = sum(mul(x, x));
    expect([...backward(loss).of(x)]).toEqual([2, 4]);
    expect([...backward(loss).of(x)]).toEqual([2, 4]);
  });

  it("tells variables that the loss does not depend on, and gives them zeros", () => {
    const [x, y] = [variable([1]), variable([2, 3])];
    const gradients = backward(sum(add(x, sum(stopGradient(y)))));
    expect([gradients.has(x), gradients.has(y)]).toEqual([true, false]);
    expect([...gradients.of(y)]).toEqual([0, 0]);
  });

  it("gives every variable an array of its own, and leaves constants alone", () => {
    const [x, y] = [variable([1, 2]), variable([3, 4])];
    const scale = new Float64Array([5, 6]);
    const shared = add(x, y);
    const gradients = backward(sum(add(mul(shared, scale), add(shared, reshape(shared, [2])))));
    gradients.of(x).fill(0);
    expect([...gradients.of(y)]).toEqual([7, 8]);
    expect([...scale]).toEqual([5, 6]);
  });

  it("adds up what many slices of one tensor give", () => {
    const x = variable(Float64Array.from({ length: 500 }, (_, index) => index));
    const squares = Array.from({ length: 499 }, (_, start) => {
      const pair = slice(x, start, start + 2);
      return sum(mul(pair, pair));
    });
    const gradient = backward(sum(stack(squares))).of(x);
    expect(gradient.slice(0, 3)).toEqual(new Float64Array([0, 4, 8]));
    expect(gradient[499]).toBe(998);
  });

  it("goes through a chain of any length", () => {
    const x = variable(1);
    let loss: Tensor = x;
    for (let term = 0; term < 50_000; term++) loss = add(loss, x);
    expect(backward(loss).of(x)[0]).toBe(50_001);
  });

  it("does not keep an unused graph in memory", async () => {
    const x = variable(new Float32Array(1000));
    const forgotten = (() => {
      const loss = sum(mul(x, 2));
      backward(loss);
      return new WeakRef(loss);
    })();
    await new Promise((resolve) => setTimeout(resolve, 0));
    globalThis.gc!();
    expect(forgotten.deref()).toBeUndefined();
  });

  it("needs one element, and gives gradients of variables only", () => {
    const x = logprobs(2, [1, 2]);
    expect(() => backward(mul(x, 2))).toThrow(
      "backward: the loss must have one element, got shape [2] (from data[2].logprobs); reduce it with sum or mean",
    );
    expect(() => backward(3 as never)).toThrow("the loss must be a Tensor, got number");
    const middle = mul(x, 2);
    expect(() => backward(sum(middle)).of(middle)).toThrow("for variables only");
  });
});

describe("numbers that are not finite", () => {
  it("are traced to the datum and the operation where they began", () => {
    const good = logprobs(0, [-1, -2]);
    const bad = logprobs(3, [-1, -2]);
    const loss = sum(stack([mean(good), mean(add(log(bad), 1))]));
    expect(() => backward(loss)).toThrow(
      "The loss is NaN: the result of log is NaN at position 0 of shape [2] (from data[3].logprobs).",
    );
  });

  it("are traced to a constant's operation and to a variable itself", () => {
    const x = logprobs(1, [-1, -2]);
    expect(() => backward(sum(sub(x, [0, Number.NaN])))).toThrow(
      /result of sub is NaN at position 1 .*data\[1\]/,
    );
    expect(() => backward(sum(logprobs(4, [Number.NaN])))).toThrow("data[4].logprobs is NaN at position 0");
    expect(() => backward(sum(exp(mul(x, -1000))))).toThrow(/result of exp is Infinity .*data\[1\]/);
  });

  it("are traced in the gradients too, where the loss itself is finite", () => {
    const x = logprobs(5, [0, 1]);
    expect(() => backward(sum(sqrt(x)))).toThrow(
      "The gradient of sqrt is Infinity at position 0 of its input [2] (from data[5].logprobs), where the value is 0.",
    );
    expect(() => backward(sum(where([0, 1], sqrt(mul(x, 1)), 0)))).toThrow(
      /gradient of sqrt is NaN.*data\[5\]/,
    );
  });

  it("are refused in gradients that come from outside", () => {
    const x = logprobs(2, [1, 2]);
    expect(() => fromGradients(1, [x], [[0, Number.NaN]])).toThrow(
      "fromGradients: the gradient of data[2].logprobs is NaN at position 1",
    );
  });
});

describe("shapes that do not fit", () => {
  const x = logprobs(1, [1, 2, 3]);
  const matrix = tensor([[1, 2]]);
  it.each([
    [
      "add: the shapes [3] (from data[1].logprobs) and [2] cannot be broadcast together",
      () => add(x, [1, 2]),
    ],
    ["where: the shapes [1] and [3] (from data[1].logprobs) and [2]", () => where([1], exp(x), [1, 2])],
    ["sum: there is no axis 1 in the shape [3] (from data[1].logprobs)", () => sum(x, { axis: 1 })],
    ["sum: an axis is named twice in [0,-1]", () => sum(x, { axis: [0, -1] })],
    ["mean: of no elements, in a tensor of shape [0] (from data[1].logprobs)", () => mean(slice(x, 3))],
    ["reshape: [3] (from data[1].logprobs) cannot become [2, -1]", () => reshape(x, [2, -1])],
    ["stack: all shapes must agree, got [3] (from data[1].logprobs) and [2]", () => stack([x, [1, 2]])],
    ["stack: expected at least one tensor, got none", () => stack([])],
    ["concat: all sizes but those of axis 0 must agree", () => concat([x, matrix])],
    ["slice: 2 to 5 is not within axis 0 of [3] (from data[1].logprobs)", () => slice(x, 2, 5)],
    ["gather: index 3 is not within axis 0 of [3] (from data[1].logprobs)", () => gather(x, [3])],
    ["gather: indices of shape [1, 2] do not fit axis 0 of [3]", () => gather(x, [[0, 1]])],
    ["matmul: cannot multiply [1, 2] by [1, 2]", () => matmul(matrix, matrix)],
    ["clamp: min must not be above max, got min 2 and max 1", () => clamp(x, { min: 2, max: 1 })],
    [
      "fromGradients: the gradient of data[1].logprobs must have the shape [3], got [1]",
      () => fromGradients(0, [x], [[1]]),
    ],
    ["fromGradients: expected 1 gradients, one per input, got 0", () => fromGradients(0, [x], [])],
    ["add: lists must be rectangular", () => add(x, [[1], [2, 3]])],
    [
      "sub: expected a tensor, a number or a list of numbers, got undefined",
      () => sub(x, undefined as never),
    ],
  ] as const)("%s", (message, run) => {
    expect(run).toThrow(message);
  });
});
