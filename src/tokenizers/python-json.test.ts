import { describe, expect, it } from "vitest";
import { floatText, printPythonJson, printPythonText, readPythonJson } from "./python-json.js";

const again = (text: string) => printPythonJson(readPythonJson(text));

describe("Python's JSON", () => {
  it.each([
    ['{"b":1.0,"10":2,"2":[ ]}', '{"b": 1.0, "10": 2, "2": []}'],
    [
      "[1e22, 1E5, 1.10, -0, -0.0, 12345678901234567890123]",
      "[1e+22, 100000.0, 1.1, 0, -0.0, 12345678901234567890123]",
    ],
    ['"caf\u00e9 \u{1f600} \\u007f/\\/"', '"caf\\u00e9 \\ud83d\\ude00 \\u007f//"'],
    ["[NaN, -Infinity, true, null]", "[NaN, -Infinity, true, null]"],
    ['{"a": 1, "b": 2, "a": 3}', '{"a": 3, "b": 2}'],
  ])("%s is printed as %s", (given, printed) => {
    expect(again(given)).toBe(printed);
  });

  it("prints floats as repr does", () => {
    const printed = [1e16, 123456789012345.6, 1e-5, 0.0001, 5e-324, 1.7976931348623157e308].map(floatText);
    expect(printed).toEqual([
      "1e+16",
      "123456789012345.6",
      "1e-05",
      "0.0001",
      "5e-324",
      "1.7976931348623157e+308",
    ]);
  });

  it.each(['{"a": 1,}', "[1 2]", '{"a"}', "{'a': 1}", '"a\nb"', "01", "1 2", "", "[", '"\\x"', "+1", ".5"])(
    "refuses %s",
    (text) => {
      expect(() => readPythonJson(text)).toThrow(/^expected/);
    },
  );

  it("sorts keys by code points, and keeps other scripts where asked", () => {
    const value = { "\u{1f600}": 1, "\uffee": 2, a: 3 };
    expect(printPythonJson(value, { sortKeys: true, ensureAscii: false, separators: [",", ":"] })).toBe(
      '{"a":3,"\uffee":2,"\u{1f600}":1}',
    );
  });

  it.each([
    ["null", "None"],
    ["true", "True"],
    ["1.0", "1.0"],
    ["-Infinity", "-inf"],
    ['"it\'s"', "it's"],
    ['["it\'s", "\\n\\"\'", {"a": [null, NaN]}]', `["it's", '\\n"\\'', {'a': [None, nan]}]`],
  ])("%s is Python's text %s", (json, text) => {
    expect(printPythonText(readPythonJson(json))).toBe(text);
  });
});
