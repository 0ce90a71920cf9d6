import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { philox } from "../../src/local/engine/philox.js";
import { JsonCursor, JsonVocabulary } from "../../src/local/engine/sampling/json/json-sampling.js";
import { readTokenizer, readTokenizerJson } from "../../src/local/tokenizer.js";
import { cases } from "../support/long.js";
import { randomSchema } from "./json-schemas.js";

const END = 511;

/** Every allowed token is as likely as any other: the hardest model to bring to an end. */
it("ends in time for every schema, however few tokens it is given", () => {
  const vocabulary = new JsonVocabulary(() => readTokenizerJson(defaultModel.path), 512);
  const tokenizer = readTokenizer(defaultModel.path)!;
  const ajv = new Ajv2020({ strict: false, ownProperties: true });
  addFormats.default(ajv);
  const logits = new Float32Array(512);
  for (let seed = 0; seed < cases(300, 30); seed++) {
    const schema = randomSchema(seed);
    const grammar = vocabulary.grammar({ type: "json_schema", schema });
    const needed = grammar.start.cost + 1;
    expect(() => new JsonCursor(grammar, [END], needed - 1)).toThrow(`needs ${needed} tokens`);
    for (const spare of [0, 1, 2, 5, 20]) {
      const cursor = new JsonCursor(grammar, [END], needed + spare);
      const tokens: number[] = [];
      while (tokens.at(-1) !== END) {
        const masked = cursor.mask(logits);
        const allowed = [...masked.keys()].filter((token) => masked[token] === 0);
        const token = allowed[philox(seed, [tokens.length, spare, 0, 13])[0] % allowed.length];
        if (token === undefined)
          throw new Error(`no way on behind ${tokenizer.decode(tokens)}\n${JSON.stringify(schema)}`);
        cursor.take(token);
        tokens.push(token);
      }
      const text = tokenizer.decode(tokens.slice(0, -1));
      if (!ajv.validate(schema, JSON.parse(text))) throw new Error(`${text}\n${JSON.stringify(schema)}`);
      expect(tokens.length).toBeLessThanOrEqual(needed + spare);
    }
  }
});

describe("a schema that is made to exhaust the engine", () => {
  const vocabulary = new JsonVocabulary(() => readTokenizerJson(defaultModel.path), 512);
  const ask = (schema: unknown) => vocabulary.grammar({ type: "json_schema", schema });
  const properties = (count: number, value: unknown = {}) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`property_${index}`, value]));
  const numbers = (count: number) => Array.from({ length: count }, (_, index) => index);

  it.each([
    ["^(((a?){1000}){1000}){1000}$", "(1000000 characters written out, at most 10000)"],
    ["^(a{0,200}){0,200}$", "(40000 characters written out"],
  ])("repeats within repeats %s are refused by their product", (pattern, message) => {
    const schema = { type: "object", properties: { name: { type: "string", pattern } } };
    expect(() => ask(schema)).toThrow(`JSON schema, #/properties/name: the "pattern" "${pattern}" repeats`);
    expect(() => ask(schema)).toThrow(message);
  });

  it.each([
    [{ properties: properties(5000), additionalProperties: true }, "#", "properties"],
    [
      { anyOf: [{ properties: { ["a".repeat(40_000)]: {} }, additionalProperties: true }] },
      "#/anyOf/0",
      "additionalProperties",
    ],
    // What is too large is a keyword of the schema at that place.
    [{ anyOf: numbers(5000).map((value) => ({ const: value })) }, "#/anyOf/1304", "const"],
  ])(
    "many members or branches, and long names, are refused by keyword, place and limit",
    (schema, place, keyword) => {
      expect(() => ask(schema)).toThrow(
        `JSON schema, ${place}: "${keyword}" is too large: building its grammar takes more than 50000 steps`,
      );
    },
  );

  it("is refused when it is long or deep, before it is read", () => {
    expect(() => ask({ properties: properties(20_000) })).toThrow("#: has more than 262144 characters");
    expect(() => ask({ enum: ["x".repeat(2_000_000)] })).toThrow("#: has more than 262144 characters");
    let deep: unknown = {};
    for (let level = 0; level < 600; level++) deep = { items: deep };
    expect(() => ask(deep)).toThrow("#: values are nested more than 500 levels deep");
  });

  it("is refused when its next token takes too long to find", () => {
    const follow = (pattern: string) => {
      const grammar = ask({ type: "string", pattern });
      const quote = readTokenizer(defaultModel.path)!.encode('"')[0]!;
      grammar.mask(grammar.advance(grammar.start, quote), 100);
    };
    expect(() => follow(`^${"(a?){1000}".repeat(60)}$`)).toThrow(
      "#: finding what may come next takes more than 50000 steps",
    );
  });

  it("is compiled where it is only large: 1,000 properties and others, names of 3,000 letters, 1,500 constants", () => {
    const name = "a".repeat(3000);
    for (const schema of [
      { type: "object", properties: properties(1000, { type: "integer" }), additionalProperties: true },
      { type: "object", properties: { [name]: { type: "integer" } }, additionalProperties: true },
      { oneOf: numbers(1500).map((value) => ({ const: value })) },
      {
        oneOf: numbers(500).map((value) => ({
          type: "object",
          properties: { kind: { const: value } },
          required: ["kind"],
        })),
      },
    ])
      expect(ask(schema).start.cost).toBeLessThan(20);
    expect(() => ask({ oneOf: [...numbers(1500), 3].map((value) => ({ const: value })) })).toThrow(
      "3 and 1500 may both fit",
    );
    // References that double at every level are read once each.
    const levels = numbers(40).map((level) => {
      const next = { $ref: `#/$defs/d${level + 1}` };
      return [`d${level}`, { allOf: [next, next] }];
    });
    const $defs = { ...Object.fromEntries(levels), d40: { type: "integer" } };
    expect(ask({ $ref: "#/$defs/d0", $defs }).start.cost).toBe(1);
  });
});
