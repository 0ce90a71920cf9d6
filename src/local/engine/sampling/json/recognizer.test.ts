import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { readTokenizer, readTokenizerJson } from "../../../tokenizer.js";
import { philox } from "../../philox.js";
import { boundedNumber } from "./numbers.js";
import { patternString } from "./pattern.js";
import { Recognizer } from "./recognizer.js";
import { constraintGrammar } from "./shape-grammar.js";
import { Steps } from "./steps.js";
import { byteVocabulary } from "./token-bytes.js";

const below = (count: number, ...at: number[]) =>
  philox(3, [at[0] ?? 0, at[1] ?? 0, at[2] ?? 0, 5])[0] % count;

describe("numbers within bounds", () => {
  it("are those that compare so when they are read, and no others", () => {
    const ends = [
      -1000, -99.5, -10, -1, -0.5, -0.001, 0, 1e-7, 0.1, 0.25, 1, 9, 10, 10.05, 99, 100, 12345.678,
    ];
    let accepted = 0;
    for (let round = 0; round < 300; round++) {
      const [a, b] = [ends[below(ends.length, round, 1)]!, ends[below(ends.length, round, 2)]!];
      const bounds = {
        ...(below(4, round, 3) === 0
          ? {}
          : { [below(2, round, 4) ? "minimum" : "exclusiveMinimum"]: Math.min(a, b) }),
        ...(below(4, round, 5) === 0
          ? {}
          : { [below(2, round, 6) ? "maximum" : "exclusiveMaximum"]: Math.max(a, b) }),
      } as { minimum?: number; exclusiveMinimum?: number; maximum?: number; exclusiveMaximum?: number };
      const isInteger = below(2, round, 7) === 0;
      const recognizer = new Recognizer(boundedNumber(bounds, isInteger), new Steps(1e6, "reading"));
      const near = [...ends, ...ends.map((end) => end + 0.001), ...ends.map((end) => end - 1)];
      for (const value of near.map((end) => Number(end.toFixed(7)))) {
        const text = value.toFixed(7).replace(/\.?0+$/, "");
        if (text === "-0") continue;
        const isWithin =
          value >= (bounds.minimum ?? -1e9) &&
          value > (bounds.exclusiveMinimum ?? -1e9) &&
          value <= (bounds.maximum ?? 1e9) &&
          value < (bounds.exclusiveMaximum ?? 1e9) &&
          (!isInteger || Number.isInteger(value));
        if (recognizer.accepts(text) !== isWithin)
          throw new Error(`${text} ${JSON.stringify({ ...bounds, isInteger })}`);
        accepted += isWithin ? 1 : 0;
      }
    }
    expect(accepted).toBeGreaterThan(1000);
  });

  it("have no leading zeros, no bare point and no minus zero", () => {
    const recognizer = new Recognizer(
      boundedNumber({ minimum: -5, maximum: 500 }, false),
      new Steps(1e6, "reading"),
    );
    for (const text of ["01", "1.", ".5", "-0", "-0.0", "1e1", "+1", "", "-", "500.01"])
      expect(recognizer.accepts(text), text).toBe(false);
    for (const text of ["0", "0.0", "-5", "-4.99", "500", "500.00", "12.5"])
      expect(recognizer.accepts(text), text).toBe(true);
  });
});

describe("patterns", () => {
  const alphabet = ["a", "b", "c", "x", "0", "7", "-", "_", " ", "\n", '"', "\\", "é", "€", "😀", "\u0001"];
  it.each([
    "a",
    "^a$",
    "^a|b$",
    "^(a|b)*c?$",
    "^[a-c]{2}$",
    "^[^a-c\\d]+$",
    "\\d",
    "^\\w+$",
    "^\\S*$",
    "^.$",
    "^..?$",
    '^[\\\\"]',
    "^(?:a{1,2}|b+)x",
    "^[é-€]+$",
    "^[😀é]?$",
    "^\\u{1f600}|\\u00e9|\\x61b$",
    "^[-_ ]+$",
    "^[^]*$",
    "",
  ])("%j finds what the regular expression finds", (pattern) => {
    const recognizer = new Recognizer(patternString(pattern), new Steps(1e6, "reading"));
    const expression = new RegExp(pattern, "u");
    for (let round = 0; round < 800; round++) {
      const length = below(4, round, 8);
      const text = Array.from({ length }, (_, at) => alphabet[below(alphabet.length, round, 9, at)]).join("");
      if (recognizer.accepts(JSON.stringify(text)) !== expression.test(text))
        throw new Error(JSON.stringify(text));
    }
  });
});

describe("any JSON", () => {
  const recognizer = new Recognizer(
    constraintGrammar({ type: "json_schema", schema: true }),
    new Steps(1e6, "reading"),
  );
  it.each(['{"a": [1, -2.5e+3, "\\u00e9\\n", {}], "b": null}', '"😀"', "0", "[[], [[]]]", "true"])(
    "takes %s",
    (text) => {
      JSON.parse(text);
      expect(recognizer.accepts(text)).toBe(true);
    },
  );

  it.each([
    "",
    "{",
    "[1,]",
    '{"a" :1}',
    "[ 1]",
    "01",
    '"\t"',
    '"\\x"',
    "nul",
    '"\\ud800"',
    "1 ",
    "{}{}",
    "'a'",
  ])("does not take %j", (text) => expect(recognizer.accepts(text)).toBe(false));
});

describe("the bytes of tokens", () => {
  it.each(["gpt2", "qwen3", "deepseek-v3", "yi"])(
    "are those that the tokenizer of %s decodes them to",
    (name) => {
      const folder = mkdtempSync(join(tmpdir(), "token-bytes-"));
      const fixture = fileURLToPath(
        new URL(`../../../../../test/fixtures/tokenizers/${name}/tokenizer.json.gz`, import.meta.url),
      );
      writeFileSync(join(folder, "tokenizer.json"), gunzipSync(readFileSync(fixture)));
      const { bytes, added } = byteVocabulary(readTokenizerJson(folder));
      const tokenizer = readTokenizer(folder)!;
      rmSync(folder, { recursive: true });
      // Some decoders drop a space at the beginning of a text.
      const [before] = tokenizer.encode("x", { addSpecialTokens: false });
      const start = tokenizer.decode([before!]);
      let compared = 0;
      bytes.forEach((token, id) => {
        const text = token && new TextDecoder("utf-8", { ignoreBOM: true }).decode(token);
        if (text === undefined || text.includes("\ufffd")) return;
        compared += 1;
        expect(tokenizer.decode([before!, id])).toBe(start + text);
      });
      expect(compared).toBeGreaterThan(300);
      for (const id of added.values()) expect(bytes[id]).toBeUndefined();
    },
  );
});
