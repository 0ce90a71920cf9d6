import { expect, it } from "vitest";
import { configText } from "./config-text.js";

it("writes whole floats of a config as floats, and integers as integers", () => {
  const original = '{"swiglu_limit": 7.0, "layers": 7, "inner": {"rope_theta":150000.0}, "eps": 1e-05}';
  const text = configText({ ...(JSON.parse(original) as object), tied: false }, original);
  expect(text).toContain('"swiglu_limit": 7.0,');
  expect(text).toContain('"layers": 7,');
  expect(text).toContain('"rope_theta": 150000.0\n');
  expect(JSON.parse(text)).toEqual({ ...(JSON.parse(original) as object), tied: false });
});
