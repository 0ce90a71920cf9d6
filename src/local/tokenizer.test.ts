import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defaultModel } from "./default-model.js";
import { readTokenizer } from "./tokenizer.js";

/** One token for each letter, a first token `<s>` for every text, and `<e>` as a special one. */
const lettersJson = {
  version: "1.0",
  added_tokens: [
    { id: 0, content: "<s>", special: true },
    { id: 1, content: "<e>", special: true },
  ].map((token) => ({ ...token, single_word: false, lstrip: false, rstrip: false, normalized: false })),
  normalizer: null,
  pre_tokenizer: { type: "Split", pattern: { Regex: "." }, behavior: "Isolated", invert: false },
  post_processor: {
    type: "TemplateProcessing",
    single: [{ SpecialToken: { id: "<s>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
    pair: [],
    special_tokens: { "<s>": { id: "<s>", ids: [0], tokens: ["<s>"] } },
  },
  decoder: { type: "Fuse" },
  model: {
    type: "BPE",
    dropout: null,
    unk_token: null,
    continuing_subword_prefix: null,
    end_of_word_suffix: null,
    fuse_unk: false,
    vocab: { "<s>": 0, "<e>": 1, a: 2, b: 3, ":": 4 },
    merges: [],
  },
};

describe("the tokenizer of a model's folder", () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "tinkerts-tokenizer-"));
    writeFileSync(join(folder, "config.json"), "{}");
    writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(lettersJson));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it("is that of the package's own model", () => {
    const tokenizer = readTokenizer(defaultModel.path)!;
    const text = "English: stick\nPig Latin: ick-stay\n47+38=85 … <|im_end|>";
    const tokens = tokenizer.encode(text);
    expect(tokenizer.decode(tokens)).toBe(text);
    expect(tokenizer.decode(Int32Array.from(tokens))).toBe(text);
    expect(tokenizer.encode("47+38=")).toHaveLength(6);
    expect(tokenizer.decode([])).toBe("");
  });

  it("adds a model's special tokens to whole texts", () => {
    const tokenizer = readTokenizer(folder)!;
    expect(tokenizer.encode("ab")).toEqual([0, 2, 3]);
    expect(tokenizer.encode("ab", { addSpecialTokens: false })).toEqual([2, 3]);
  });

  it("is null where the folder has none", () => {
    expect(readTokenizer(join(folder, "none"))).toBeNull();
  });
});
