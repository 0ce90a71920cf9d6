import { describe, expect, it } from "vitest";
import { checkPattern } from "./check-pattern.js";
import { huggingFaceTokenizer } from "./hugging-face-tokenizer.js";

const PUBLISHED = [
  String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
  String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_\x60{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  String.raw`\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))`,
  String.raw`\d{1,3}(?=(\d{3})+(?!\d))`,
  String.raw`<\|startoftext\|>|<\|endoftext\|>|'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`,
  String.raw` ?[^\s.,!?…。，、।۔،]+`,
  String.raw`(?=[A-Z])|\w+|[^\w\s]+`,
];

describe("a tokenizer's pattern", () => {
  it.each(PUBLISHED)("of published tokenizers is run: %s", (pattern) => {
    expect(() => checkPattern(pattern, "pre_tokenizer")).not.toThrow();
  });

  it.each([
    ["(a+)+$", "can match one text in several ways"],
    ["(?:a*)*b", "can match one text in several ways"],
    ["(a|a)*$", "can match one text in several ways"],
    ["((a+)b?){2,}c", "can match one text in several ways"],
    ["(?<x>a{1,5}){3}", "can match one text in several ways"],
    [String.raw`[[](a+)+$|[\]]`, "can match one text in several ways"],
    ["(?=(a+)+$)", "can match one text in several ways"],
    ["a*a*a*a*b", "more than 3 open repeats"],
    ["a*(b*(c*(d*)))e", "more than 3 open repeats"],
    ["((a{1000}){1000}){1000}", "more than 10000 times"],
    [String.raw`(a)\1+$`, "refers back"],
    ["a".repeat(70_000), "longer than 65536 characters"],
  ])("that may take exponential time is refused by name: %s", (pattern, why) => {
    expect(() => checkPattern(pattern, "pre_tokenizer")).toThrow(why);
  });

  it.each([
    ["pre_tokenizer", { type: "Split", behavior: "Isolated", invert: false }],
    ["normalizer", { type: "Replace", content: "" }],
    ["decoder", { type: "Replace", content: "" }],
  ])("is looked for in the %s, within sequences too", (place, part) => {
    const hostile = { ...part, pattern: { Regex: "(a+)+$" } };
    const lists = { pre_tokenizer: "pretokenizers", normalizer: "normalizers", decoder: "decoders" };
    const sequence = { type: "Sequence", [lists[place as keyof typeof lists]]: [hostile] };
    const rest = {
      model: { type: "BPE", vocab: { a: 0 }, merges: [] },
      added_tokens: [],
      normalizer: null,
      pre_tokenizer: null,
      post_processor: null,
      decoder: null,
    };
    for (const given of [hostile, sequence])
      expect(() => huggingFaceTokenizer({ ...rest, [place]: given }, {})).toThrow(
        `The tokenizer's ${place} has the pattern (a+)+`,
      );
  });
});
