import { afterAll, describe, expect, it } from "vitest";
import type { F32 } from "./kernels.js";
import { put, putInts, randomFloats } from "./test-support.js";
import { createWasmKernels } from "./wasm-kernels.node.js";

const kernels = createWasmKernels({ threads: 2 });
afterAll(() => kernels.close());

const step = 2 ** -6;

/**
 * Compares `gradient` with central differences of sum(output * cotangent) with respect to every entry of `input`, which
 * `forward` reads; errors count relative to the largest entry.
 */
function expectGradient(
  input: F32,
  gradient: F32,
  forward: () => F32,
  cotangent: Float32Array,
  tolerance = 2e-3,
): void {
  const values = kernels.view(input);
  const loss = () => {
    const output = kernels.view(forward());
    let sum = 0;
    for (let i = 0; i < cotangent.length; i++) sum += output[i]! * cotangent[i]!;
    return sum;
  };
  const actual = Array.from(kernels.view(gradient));
  const differences = actual.map((_, i) => {
    const original = values[i]!;
    values[i] = original + step;
    const above = loss();
    values[i] = original - step;
    const below = loss();
    values[i] = original;
    return (above - below) / (2 * step);
  });
  const largest = Math.max(...differences.map(Math.abs));
  expect(largest).toBeGreaterThan(0.01);
  actual.forEach((value, i) => {
    expect(
      Math.abs(value - differences[i]!) / largest,
      `entry ${i}: ${value}, ${differences[i]}`,
    ).toBeLessThan(tolerance);
  });
}

describe("gradients against finite differences", () => {
  it("matmul: da = dc * b^T and db = a^T * dc", () => {
    const [m, n, k] = [5, 11, 6];
    const [a, b, c] = [
      put(kernels, randomFloats(m * k, 1)),
      put(kernels, randomFloats(k * n, 2)),
      kernels.alloc(m * n),
    ];
    const cotangent = randomFloats(m * n, 3);
    const dc = put(kernels, cotangent);
    const [da, db] = [kernels.alloc(m * k), kernels.alloc(k * n)];
    kernels.matmul(da, dc, b, m, k, n, { transB: true });
    kernels.matmul(db, a, dc, k, n, m, { transA: true });
    const forward = () => {
      kernels.matmul(c, a, b, m, n, k);
      return c;
    };
    expectGradient(a, da, forward, cotangent);
    expectGradient(b, db, forward, cotangent);
  });

  it("rmsNorm: x and weight", () => {
    const [rows, cols] = [4, 13];
    const [x, weight] = [put(kernels, randomFloats(rows * cols, 1)), put(kernels, randomFloats(cols, 2))];
    const [out, rstd] = [kernels.alloc(rows * cols), kernels.alloc(rows)];
    const cotangent = randomFloats(rows * cols, 3);
    const forward = () => {
      kernels.rmsNorm({ out, rstd, x, weight, rows, cols, eps: 1e-5 });
      return out;
    };
    forward();
    const [dx, dweight] = [kernels.alloc(rows * cols), kernels.alloc(cols)];
    const dout = put(kernels, cotangent);
    kernels.rmsNormBackward({ dx, dweight, dout, x, rstd, weight, rows, cols });
    expectGradient(x, dx, forward, cotangent);
    expectGradient(weight, dweight, forward, cotangent);
  });

  it("normRope: x and weight, and x alone without the norm", () => {
    const [rows, heads, headDim] = [3, 2, 12];
    const stride = heads * headDim;
    const angles = randomFloats(8 * (headDim / 2), 7).map((value) => 3 * value);
    const [cos, sin] = [put(kernels, angles.map(Math.cos)), put(kernels, angles.map(Math.sin))];
    const angleTables = { cos, sin, positions: putInts(kernels, [0, 3, 7]) };
    const cotangent = randomFloats(rows * stride, 3);
    for (const normed of [true, false]) {
      const x = put(kernels, randomFloats(rows * stride, 1));
      const weight = normed ? put(kernels, randomFloats(headDim, 2)) : undefined;
      const rstd = normed ? kernels.alloc(rows * heads) : undefined;
      const out = kernels.alloc(rows * stride);
      const inRows = (data: F32) => ({ data, stride });
      const forward = () => {
        kernels.normRope({
          out: inRows(out),
          rstd,
          x: inRows(x),
          weight,
          angles: angleTables,
          rows,
          heads,
          headDim,
          eps: 1e-6,
        });
        return out;
      };
      forward();
      const [dx, dweight] = [kernels.alloc(rows * stride), kernels.alloc(headDim)];
      const dout = put(kernels, cotangent);
      kernels.normRopeBackward({
        dx: inRows(dx),
        dweight,
        dout: inRows(dout),
        x: inRows(x),
        rstd,
        weight,
        angles: angleTables,
        rows,
        heads,
        headDim,
      });
      expectGradient(x, dx, forward, cotangent);
      if (weight) expectGradient(weight, dweight, forward, cotangent);
    }
  });

  it("swiglu: gate and up", () => {
    const [rows, cols] = [3, 9];
    const gateUp = put(
      kernels,
      randomFloats(2 * rows * cols, 1).map((value) => 3 * value),
    );
    const [out, dgateUp] = [kernels.alloc(rows * cols), kernels.alloc(2 * rows * cols)];
    const cotangent = randomFloats(rows * cols, 2);
    kernels.swigluBackward(dgateUp, put(kernels, cotangent), gateUp, rows, cols);
    const forward = () => {
      kernels.swiglu(out, gateUp, rows, cols);
      return out;
    };
    expectGradient(gateUp, dgateUp, forward, cotangent);
  });

  it("attention: queries, keys and values, with shared key heads and two sequences", () => {
    const shape = { heads: 4, kvHeads: 2, headDim: 6, scale: 0.7 };
    const rows = 9;
    const offsets = putInts(kernels, [0, 3, 9]);
    const [qStride, kvStride] = [shape.heads * shape.headDim, shape.kvHeads * shape.headDim];
    const q = { data: put(kernels, randomFloats(rows * qStride, 1)), stride: qStride };
    const k = { data: put(kernels, randomFloats(rows * kvStride, 2)), stride: kvStride };
    const v = { data: put(kernels, randomFloats(rows * kvStride, 3)), stride: kvStride };
    const [out, logSumExp] = [kernels.alloc(rows * qStride), kernels.alloc(rows * shape.heads)];
    const operation = { out, logSumExp, query: q, key: k, value: v, offsets, shape };
    const cotangent = randomFloats(rows * qStride, 4);
    const forward = () => {
      kernels.attention(operation);
      return out;
    };
    forward();
    const dq = { data: kernels.alloc(rows * qStride), stride: qStride };
    const dk = { data: kernels.alloc(rows * kvStride), stride: kvStride };
    const dv = { data: kernels.alloc(rows * kvStride), stride: kvStride };
    const dout = put(kernels, cotangent);
    kernels.attentionBackward({ ...operation, dquery: dq, dkey: dk, dvalue: dv, dout });
    expectGradient(q.data, dq.data, forward, cotangent);
    expectGradient(k.data, dk.data, forward, cotangent);
    expectGradient(v.data, dv.data, forward, cotangent);
  });

  it("log-softmax: logits, with several targets per row", () => {
    const [rows, vocab, perRow] = [3, 11, 2];
    const values = randomFloats(rows * vocab, 1).map((value) => 2 * value);
    const logits = put(kernels, values);
    const targets = putInts(kernels, [0, 3, 10, 10, 5, 6]);
    const [logprobs, logSumExp] = [kernels.alloc(rows * perRow), kernels.alloc(rows)];
    const shared = { logSumExp, targets, rows, vocabSize: vocab, targetsPerRow: perRow };
    const cotangent = randomFloats(rows * perRow, 2);
    const forward = () => {
      kernels.logSoftmaxGather({ ...shared, logprobs, logits });
      return logprobs;
    };
    forward();
    const gradient = put(kernels, values);
    kernels.logitsGradient({ ...shared, logits: gradient, coefficients: put(kernels, cotangent) });
    expectGradient(logits, gradient, forward, cotangent);
  });

  it("gatherRows: the table, through scatterAddRows", () => {
    const [rows, cols] = [5, 6];
    const table = put(kernels, randomFloats(4 * cols, 1));
    const indices = putInts(kernels, [1, 3, 1, 0, 1]);
    const out = kernels.alloc(rows * cols);
    const cotangent = randomFloats(rows * cols, 2);
    const dtable = kernels.alloc(4 * cols);
    kernels.scatterAddRows(dtable, put(kernels, cotangent), indices, rows, cols);
    const forward = () => {
      kernels.gatherRows(out, table, indices, rows, cols);
      return out;
    };
    expectGradient(table, dtable, forward, cotangent);
  });
});
