import { describe, expect, it } from "vitest";
import { splitLongRuns } from "./split-long-runs.js";

describe("splitLongRuns", () => {
  it("cuts runs of characters without white space, and of white space, and nothing else", () => {
    expect(splitLongRuns("abc", 9, 3)).toEqual(["abc"]);
    expect(splitLongRuns("abcdefgh", 99, 3)).toEqual(["abc", "def", "gh"]);
    expect(splitLongRuns("ab cd ef gh", 99, 3)).toEqual(["ab cd ef gh"]);
    expect(splitLongRuns("x     #####", 99, 3)).toEqual(["x   ", "  ###", "##"]);
  });

  it("cuts after a number of characters, and starts counting again there", () => {
    expect(splitLongRuns("a b c d e", 4, 3)).toEqual(["a b ", "c d ", "e"]);
    expect(splitLongRuns("abcdef", 2, 3)).toEqual(["ab", "cd", "ef"]);
  });

  it("counts code points, and takes Python's idea of white space", () => {
    expect(splitLongRuns("😀😀😀😀", 99, 3)).toEqual(["😀😀😀", "😀"]);
    expect(splitLongRuns("ab\x1ccd\x1cef", 99, 3)).toHaveLength(1);
    expect(splitLongRuns("ab\ufeffcd", 99, 3)).toEqual(["ab\ufeff", "cd"]);
  });

  it("loses nothing of a large text", () => {
    const text = `${"x".repeat(60_000)} ${"word ".repeat(100_000)}`;
    const parts = splitLongRuns(text);
    expect(parts.join("")).toBe(text);
    expect(parts.map((part) => part.length)).toEqual([25_000, 25_000, 350_000, 160_001]);
  });
});
