import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { CustomLossGraph, CustomLossInput } from "../../wire/training/custom-loss-graph.js";
import { Tensor } from "../autograd/index.js";
import { compileLossGraph, evaluateProgram, PassMeter } from "./index.js";

interface Fixture {
  readonly values: readonly { data: number[]; shape: number[]; dtype: "int64" | "float32" }[];
  readonly cases: readonly {
    name: string;
    inputs: CustomLossInput[];
    graph: CustomLossGraph;
    values: number[];
    loss: number;
    metrics: Record<string, number>;
    gradient: number[];
  }[];
}

const { values, cases } = JSON.parse(
  readFileSync(new URL("../../../test/fixtures/losses/custom-graphs.json", import.meta.url), "utf8"),
) as Fixture;

const closeTo = (expected: number) =>
  Number.isFinite(expected)
    ? expect.toSatisfy(
        (given: number) => Math.abs(given - expected) <= 1e-9 * Math.max(1, Math.abs(expected)),
        `${expected}`,
      )
    : expected;

describe("a traced loss computes what torch.fx computes", () => {
  it.each(cases.map((one) => [one.name, one] as const))("%s", (_, one) => {
    const given = one.values.map((place) => {
      const { data, shape, dtype } = values[place]!;
      return { tensor: new Tensor(Float64Array.from(data), shape), dtype };
    });
    const meter = new PassMeter(given[0]!.tensor.size);
    meter.startDatum(given[0]!.tensor.size);
    const { tensor } = given[0]!;
    const logprobs = { values: tensor.values, shape: tensor.shape };
    const program = compileLossGraph(one.graph, one.inputs);
    const evaluated = evaluateProgram(program, logprobs, given.slice(1), meter);
    expect(evaluated.loss).toEqual(closeTo(one.loss));
    expect([...evaluated.gradient]).toEqual(one.gradient.map(closeTo));
    expect(Object.fromEntries(evaluated.metrics)).toEqual(
      Object.fromEntries(Object.entries(one.metrics).map(([key, value]) => [key, closeTo(value)])),
    );
  });
});
