import { expect, it } from "vitest";
import { cases, longTest } from "./long.js";

it("a long run has all cases and all long tests", () => {
  expect(cases(2, 1)).toBe(2);
  expect(longTest).toBe(it);
});
