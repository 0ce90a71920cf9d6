import { describe, expect, it } from "vitest";
import type { RunSummary } from "../../api.js";
import { axisOf } from "./plot-axis.js";
import { fieldOf } from "./run-fields.js";

describe("the axis of a plot", () => {
  const labelsOf = (values: readonly number[]) => {
    const runs = values.map((value) => ({ config: { rate: value } }) as unknown as RunSummary);
    return axisOf(fieldOf("rate"), runs).ticks.map(({ label }) => label);
  };

  it("marks every value where there are few", () => {
    expect(labelsOf([4, 8, 16])).toEqual(["4", "8", "16"]);
    expect(labelsOf([7])).toEqual(["7"]);
  });

  it("leaves out a value whose label would lie over that of another", () => {
    expect(labelsOf([1.507, 1.54, 4.016, 4.034])).toEqual(["1.507", "4.034"]);
    expect(labelsOf([1, 1.01, 2, 3])).toEqual(["1", "2", "3"]);
  });
});
