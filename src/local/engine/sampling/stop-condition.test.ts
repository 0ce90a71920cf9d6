import { expect, it } from "vitest";
import { StopCondition } from "./stop-condition.js";

const decode = (tokens: number[]) =>
  tokens.map((token) => (token === 0 ? "" : String.fromCharCode(token))).join("");
const codes = (text: string) => [...text].map((letter) => letter.charCodeAt(0));

it("stops at tokens", () => {
  const stop = new StopCondition([5], [], undefined);
  expect(stop.reached([1, 5])).toBe(true);
  expect(stop.reached([5, 1])).toBe(false);
});

it("stops at strings that several tokens make up, empty ones in between", () => {
  const stop = new StopCondition([], ["\n\n", "END"], decode);
  expect(stop.reached(codes("the EN"))).toBe(false);
  expect(stop.reached(codes("the END"))).toBe(true);
  const gaps = [...codes("E"), ...new Array<number>(100).fill(0), ...codes("ND")];
  expect(stop.reached(gaps)).toBe(true);
  expect(stop.reached(codes("a\n\n"))).toBe(true);
});

it("looks at a window only, however long the sample is", () => {
  let longest = 0;
  const stop = new StopCondition([], ["END"], (tokens) => {
    longest = Math.max(longest, tokens.length);
    return decode(tokens);
  });
  expect(stop.reached(codes("x".repeat(10_000)))).toBe(false);
  expect(longest).toBeLessThan(30);
});
