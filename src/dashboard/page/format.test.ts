import { describe, expect, it } from "vitest";
import { age, bytes, distinctNames, durationLabel, shortNumber } from "./format.js";

describe("what the page writes", () => {
  it("is short, and loses nothing a person would miss", () => {
    expect([0, 1, -1234, 12_345_678, 0.123456, 0.000123456, 1e308, -5e-324].map(shortNumber)).toEqual([
      ...["0", "1", "-1,234", "1.23e7", "0.1235", "1.23e-4", "1.00e308", "-4.94e-324"],
    ]);
    expect([null, Number.NaN, Number.POSITIVE_INFINITY].map(shortNumber)).toEqual(
      Array(3).fill("not a number"),
    );
    expect([0.04, 59, 60, 3661, 90_000].map(durationLabel)).toEqual([
      "0.0 s",
      "59 s",
      "1 min",
      "1 h 1 min",
      "1 d 1 h",
    ]);
    expect([0, 999, 1000, 123_456_789].map(bytes)).toEqual(["0 B", "999 B", "1.0 KB", "123 MB"]);
    expect([0, 11_000, 3_600_000].map((before) => age(1e12 - before, 1e12))).toEqual([
      "just now",
      "11 s ago",
      "1 h ago",
    ]);
    // Of a date that is none.
    expect([age(Number.NaN), durationLabel(Number.NaN)]).toEqual(["unknown", "unknown"]);
  });

  it("tells names apart by what they differ in, in whole words", () => {
    const long = (rate: string, seed: number) =>
      `a-search-over-many-things-lr=${rate}-with-all-else-alike-${seed}`;
    expect(distinctNames([long("1e-4", 0), long("25e-5", 0)])).toEqual(["…1e-4…", "…25e-5…"]);
    expect(distinctNames([long("1e-4", 0), long("1e-4", 1)])).toEqual(["…0", "…1"]);
    expect(distinctNames(["taught", "taught-slowly"])).toEqual(["taught", "taught-slowly"]);
    const prefix = "the-beginning-of-another-run";
    expect(distinctNames([prefix, `${prefix}-that-goes-on`])[0]).toContain("run");
    expect(distinctNames(["alone-with-a-long-name"])).toEqual(["alone-with-a-long-name"]);
  });
});
