import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { philox } from "../../src/local/engine/philox.js";
import { JsonCursor, JsonVocabulary } from "../../src/local/engine/sampling/json/json-sampling.js";
import { readTokenizer, readTokenizerJson } from "../../src/local/tokenizer.js";
import { randomSchema } from "./json-schemas.js";

const END = 511;

/** Every allowed token is as likely as any other: the hardest model to bring to an end. */
it("ends in time for every schema, however few tokens it is given", () => {
  const vocabulary = new JsonVocabulary(() => readTokenizerJson(defaultModel.path), 512);
  const tokenizer = readTokenizer(defaultModel.path)!;
  const ajv = new Ajv2020({ strict: false, ownProperties: true });
  addFormats.default(ajv);
  const logits = new Float32Array(512);
  for (let seed = 0; seed < 300; seed++) {
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
}, 120_000);
