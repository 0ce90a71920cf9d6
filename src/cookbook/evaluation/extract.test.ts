import { describe, expect, it } from "vitest";
import { extractBoxed, extractChoice, extractNumber, isSameNumber } from "./extract.js";

describe("what is boxed", () => {
  it.each([
    ["so \\boxed{42}.", "42"],
    ["\\boxed{\\frac{1}{2}} and \\boxed{3}", "\\frac{1}{2}"],
    ["\\boxed{}", ""],
    ["\\boxed{1 + {2}", undefined],
    ["boxed{1}", undefined],
  ])("in %j is %j", (text, boxed) => expect(extractBoxed(text)).toBe(boxed));
});

describe("the number of an answer", () => {
  it.each([
    // Boxed goes before everything else, and LaTeX around it does not matter.
    ["The answer is 7. \\boxed{\\$1{,}234.50\\text{ dollars}}", "1234.50"],
    ["\\boxed{x}", "x"],
    ["\\boxed{} 5", "5"],
    // GSM8K's mark: the first number behind it.
    ["3 + 4 = 7\n#### 1,007 apples\n9", "1007"],
    ["#### -3.5", "-3.5"],
    // In words: the first such sentence.
    ["The answer is $1,000. Or rather the answer is 5", "1000."],
    ["ANSWER: -12 of 13", "-12"],
    // Bold: the last one.
    ["**12** then **$3,400.** and 7", "3400"],
    // Else the last number.
    ["12 + 7 = 19.", "19."],
    ["from 5 to 1,250.75 in 3 - 2", "2"],
    ["none", undefined],
    ["", undefined],
  ])("in %j is %j", (text, number) => expect(extractNumber(text)).toBe(number));
});

describe("two numbers", () => {
  it.each([
    ["19.", "19", true],
    ["1234.50", "1,234.5", true],
    ["0.333333", "0.33333", true],
    ["0.3334", "0.3333", false],
    ["-0", "0", true],
    ["1e3", "1000", true],
    // Not numbers: compared as texts. JavaScript alone would take these for 0 and 16.
    ["", "0", false],
    ["0x10", "16", false],
    ["x", "x", true],
  ])("%j and %j: %j", (given, expected, same) => expect(isSameNumber(given, expected)).toBe(same));
});

describe("the letter of a choice", () => {
  it.each([
    ["\\boxed{ b }", "B"],
    ["\\boxed{BC} so the answer is (c)", "C"],
    ["The answer is A, not D", "A"],
    ["Answer: (d)", "D"],
    ["A or B? I take B.", "B"],
    ["Both ABBA and DAB are bands", undefined],
    ["éA, A_1, Aß", undefined],
    // The last 300 characters count, and none of them twice.
    [`A${"😀".repeat(299)}`, "A"],
    [`A${"😀".repeat(300)}`, undefined],
    ["the answer is E", undefined],
    ["a", undefined],
  ])("in %j is %j", (text, letter) => expect(extractChoice(text)).toBe(letter));

  it("is one of those that are allowed", () => {
    expect(extractChoice("the answer is J", "ABCDEFGHIJ")).toBe("J");
  });
});
