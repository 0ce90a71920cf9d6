import { describe, expect, it } from "vitest";
import { loadModule } from "./wasm-kernels.node.js";
import type { WasmExports } from "./wasm-operations.js";

const memory = new WebAssembly.Memory({ initial: 64, maximum: 65_536, shared: true });
const wasm = new WebAssembly.Instance(loadModule("plain"), { env: { memory } })
  .exports as unknown as WasmExports;
wasm.configure(1, 0, 0);
const [source, target] = [1 << 16, 1 << 21];

function apply(name: "expArray" | "logArray", values: Float32Array): Float32Array {
  new Float32Array(memory.buffer, source, values.length).set(values);
  wasm[name](target, source, values.length);
  return new Float32Array(new Float32Array(memory.buffer, target, values.length));
}

/** Distance in units of the last place of the float32 nearest to `exact`. */
function unitsInLastPlace(actual: number, exact: number): number {
  const rounded = Math.fround(exact);
  const unit = Math.max(2 ** -149, 2 ** (Math.floor(Math.log2(Math.abs(rounded))) - 23));
  return Math.abs(actual - exact) / unit;
}

describe("exp and log in wasm", () => {
  it("exp is within 2 units in the last place of Math.exp, over all of float32's range", () => {
    const inputs = Float32Array.from({ length: 100_000 }, (_, i) => -103 + (i * (88.7 + 103)) / 100_000);
    const outputs = apply("expArray", inputs);
    let worst = 0;
    inputs.forEach((x, i) => {
      worst = Math.max(worst, unitsInLastPlace(outputs[i]!, Math.exp(x)));
    });
    expect(worst).toBeLessThan(2);
  });

  it("exp is exact where it has to be", () => {
    const outputs = apply(
      "expArray",
      Float32Array.of(0, -0, Number.NEGATIVE_INFINITY, -200, Number.POSITIVE_INFINITY, 89, Number.NaN, -1e30),
    );
    expect(Array.from(outputs)).toEqual([1, 1, 0, 0, Infinity, Infinity, Number.NaN, 0]);
  });

  it("log is within 1 unit in the last place of Math.log", () => {
    const inputs = Float32Array.from({ length: 100_000 }, (_, i) => 1.0001 ** (i - 50_000) * 1.37);
    const outputs = apply("logArray", inputs);
    let worst = 0;
    inputs.forEach((x, i) => {
      worst = Math.max(worst, unitsInLastPlace(outputs[i]!, Math.log(x)));
    });
    expect(worst).toBeLessThan(1);
    expect(Array.from(apply("logArray", Float32Array.of(1, 2, Infinity)))).toEqual([
      0,
      Math.fround(Math.LN2),
      Infinity,
    ]);
  });
});
