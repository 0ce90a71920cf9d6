import { describe, expect, it } from "vitest";
import { combineForwardBackwardOutputs, hashUnordered, reduceMetrics } from "./combine.js";

describe("metrics of chunks", () => {
  it("hash as CPython hashes the sorted tuple", () => {
    const golden: [number[], bigint][] = [
      [[], 5740354900026072187n],
      [[0], -8753497827991233192n],
      [[-1], 8078679518589016365n],
      [[-2], 8078679518589016365n],
      [[2 ** 53], -6041923821307568808n],
      [[3, 1], -1440771752368011620n],
      [[3, 2, 1], 529344067295497451n],
      [[5, -1], 7913930892179122687n],
      [[7, 2 ** 61], -7580621630451799004n],
    ];
    for (const [values, hash] of golden) expect(hashUnordered(values)).toBe(Number(hash));
  });

  it("weigh means by datums, and fall back to a plain mean without any", () => {
    expect(reduceMetrics([{ "a:mean": 1 }, { "a:mean": 4 }], [1, 2])).toEqual({ "a:mean": 3 });
    expect(reduceMetrics([{ "a:mean": 1 }, { "a:mean": 4 }], [0, 0])).toEqual({ "a:mean": 2.5 });
  });

  it("keep a NaN visible in min and max, wherever it stands", () => {
    for (const values of [
      [Number.NaN, 1],
      [1, Number.NaN],
    ]) {
      const chunks = values.map((value) => ({ "a:min": value, "b:max": value }));
      expect(reduceMetrics(chunks, [1, 1])).toEqual({ "a:min": Number.NaN, "b:max": Number.NaN });
    }
  });

  it("go by the last colon of the name", () => {
    expect(reduceMetrics([{ "a:b:sum": 1 }, { "a:b:sum": 2 }], [1, 1])).toEqual({ "a:b:sum": 3 });
  });

  it("pass through untouched when there is one chunk", () => {
    const output = { lossFnOutputType: "T", lossFnOutputs: [], metrics: { "odd:name": 1, plain: 2 } };
    expect(combineForwardBackwardOutputs([output])).toBe(output);
  });
});
