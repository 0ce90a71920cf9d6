import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import {
  CancelledError,
  type Engine,
  EngineInputError,
  type JsonConstraint,
  type SampleCall,
} from "../../src/local/engine/engine.js";
import { createEngineCore } from "../../src/local/engine/start-engine.node.js";
import { readTokenizer } from "../../src/local/tokenizer.js";
import { cases } from "../support/long.js";
import { sampleCall } from "./engines.js";
import { randomSchema } from "./json-schemas.js";
import { END, randomModel } from "./random-model.js";

const NANO = defaultModel.path;
const tokenizer = readTokenizer(NANO)!;
const folders: string[] = [];
const newModel = async (seed: number) => {
  const folder = await randomModel(seed);
  folders.push(folder);
  return folder;
};
let engine: Engine;

const ajv = new Ajv2020({ strict: false, allErrors: true, ownProperties: true });
addFormats.default(ajv);

beforeAll(async () => {
  engine = await createEngineCore({
    models: [
      { name: "random", path: await newModel(1) },
      { name: "other", path: await newModel(2) },
      { name: "nano", path: NANO },
    ],
    threads: 1,
  });
});
afterAll(async () => {
  await engine.close();
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

const prompt = Int32Array.from(tokenizer.encode("Write JSON: "));
const schemaOf = (schema: unknown): JsonConstraint => ({ type: "json_schema", schema });

function ask(constraint: JsonConstraint | undefined, changes: Partial<SampleCall> = {}) {
  return engine.sample(
    sampleCall(prompt, { baseModel: "random", maxTokens: 120, stopTokens: [END], constraint, ...changes }),
  );
}

/** The texts of all samples; each must have ended by itself, with the end token. */
async function texts(constraint: JsonConstraint, changes: Partial<SampleCall> = {}): Promise<string[]> {
  const { sequences } = await ask(constraint, changes);
  return sequences.map(({ tokens, stopReason }) => {
    expect(stopReason).toBe("stop");
    expect(tokens.at(-1)).toBe(END);
    return tokenizer.decode([...tokens.slice(0, -1)]);
  });
}

function expectFits(schema: unknown, text: string): void {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new Error(`does not parse: ${text}\n${JSON.stringify(schema)}`);
  }
  const validate = ajv.compile(schema as object);
  if (!validate(parsed))
    throw new Error(`${text}\n${JSON.stringify(schema)}\n${ajv.errorsText(validate.errors)}`);
}

describe("JSON output", () => {
  it("fits generated schemas, whatever the model, the seed and the sampling settings", async () => {
    const settings = [
      { baseModel: "random", temperature: 1 },
      { baseModel: "other", temperature: 1.7, topP: 0.9 },
      { baseModel: "nano", temperature: 1, topK: 5 },
    ];
    const failures: string[] = [];
    await Promise.all(
      Array.from({ length: cases(300, 30) }, async (_, seed) => {
        const schema = randomSchema(seed);
        for (const [index, setting] of settings.entries()) {
          try {
            const [text] = await texts(schemaOf(schema), {
              ...setting,
              ...(seed % 10 === 0 ? { temperature: 0 } : {}),
              seed: seed * 10 + index,
              maxTokens: 200,
            });
            expectFits(schema, text!);
          } catch (error) {
            failures.push(String(error));
          }
        }
      }),
    );
    expect(failures).toEqual([]);
  });

  it("is any object where no schema is given", async () => {
    const found = await texts({ type: "json_object" }, { numSamples: 20, maxTokens: 80 });
    for (const text of found) expect(JSON.parse(text)).toBeTypeOf("object");
    expect(found.every((text) => text.startsWith("{"))).toBe(true);
    expect(new Set(found).size).toBeGreaterThan(10);
  });

  it("ends in time at every token limit, or is refused before it begins", async () => {
    const schema = {
      type: "object",
      properties: {
        name: { type: "string", minLength: 3 },
        tags: { type: "array", items: { enum: ["größe", "plain"] }, minItems: 1 },
        score: { type: "number", minimum: 10, maximum: 20 },
      },
      required: ["name", "tags"],
      additionalProperties: { $ref: "#" },
    };
    const constraint = schemaOf(schema);
    const refusal = await ask(constraint, { maxTokens: 1 }).catch((error: Error) => error.message);
    const needed = Number(/needs (\d+) tokens/.exec(String(refusal))?.[1]);
    expect(needed).toBeGreaterThan(5);
    for (let maxTokens = 0; maxTokens < needed; maxTokens++)
      await expect(ask(constraint, { maxTokens })).rejects.toThrow(
        `needs ${needed} tokens, and there is room for`,
      );
    const lengths = Array.from({ length: 60 }, (_, more) => needed + more);
    await Promise.all(
      lengths.map(async (maxTokens) => {
        const found = await texts(constraint, { maxTokens, numSamples: 3, seed: maxTokens, temperature: 2 });
        for (const text of found) expectFits(schema, text);
      }),
    );
  });

  it("ends before the context does", async () => {
    const short = Int32Array.from({ length: 480 }, (_, at) => at % 500);
    const { sequences } = await ask(
      { type: "json_object" },
      { baseModel: "nano", prompt: short, maxTokens: 400 },
    );
    const { tokens, stopReason } = sequences[0]!;
    expect(stopReason).toBe("stop");
    expect(tokens.length).toBeLessThanOrEqual(33);
    JSON.parse(tokenizer.decode([...tokens.slice(0, -1)]));
  });

  it("follows recursion as deep as the model likes", async () => {
    const schema = {
      $ref: "#/$defs/list",
      $defs: { list: { type: "array", items: { $ref: "#/$defs/list" } } },
    };
    const found = await texts(schemaOf(schema), { numSamples: 10, maxTokens: 300, temperature: 3 });
    for (const text of found) expectFits(schema, text);
    expect(Math.max(...found.map((text) => text.lastIndexOf("[[[")))).toBeGreaterThan(-1);
  });

  it("writes every one of awkward names and values exactly", async () => {
    const values = [
      "",
      '"',
      "\\",
      "a\nb",
      "\u0000",
      "größe",
      "日本語",
      "😀",
      "\ud800",
      "__proto__",
      1e21,
      -0.5,
      null,
      true,
      [[]],
    ];
    const properties = JSON.parse(`{"__proto__":{"const":1},"\\"\\n😀":{"const":2}}`);
    const constraint = schemaOf({ type: "object", properties, required: Object.keys(properties) });
    const [named] = await texts(constraint);
    expect(JSON.parse(named!)).toEqual(JSON.parse(`{"__proto__":1,"\\"\\n😀":2}`));
    for (const value of values) {
      const [text] = await texts(schemaOf({ const: value }));
      expect(JSON.parse(text!)).toEqual(value);
    }
    const found = await texts(schemaOf({ enum: values }), { numSamples: 100, temperature: 3 });
    expect(new Set(found).size).toBeGreaterThan(5);
    for (const text of found) expect(values).toContainEqual(JSON.parse(text));
  });

  it("writes characters of every length in UTF-8, whole", async () => {
    const found = await texts(schemaOf({ type: "string", minLength: 5, maxLength: 5 }), {
      numSamples: 60,
      temperature: 3,
    });
    for (const text of found) {
      expect(text).not.toContain("\ufffd");
      expect([...JSON.parse(text)]).toHaveLength(5);
    }
    expect(
      new Set(found.flatMap((text) => [...text].map((character) => Buffer.byteLength(character)))),
    ).toEqual(new Set([1, 2, 3, 4]));
  });

  it("gives the same for the same seed, and changes nothing for its neighbours", async () => {
    const constraint = schemaOf(randomSchema(4));
    const plain = { seed: 8, maxTokens: 40, stopTokens: [], numSamples: 2, topkSampleLogprobs: 3 };
    const alone = [await ask(constraint, { numSamples: 2 }), await ask(undefined, plain)];
    const together = await Promise.all([
      ask(constraint, { numSamples: 2 }),
      ask(undefined, plain),
      ask({ type: "json_object" }, { seed: 99 }),
    ]);
    const tokens = ({ sequences }: { sequences: unknown[] }) => sequences;
    expect(tokens(together[0])).toEqual(tokens(alone[0]!));
    expect(tokens(together[1])).toEqual(tokens(alone[1]!));
  });

  it("reports the logprobs that the model gives, not those among the allowed tokens", async () => {
    const { sequences } = await ask(schemaOf({ const: "x" }));
    const { tokens, logprobs } = sequences[0]!;
    const scored = await engine.sample(
      sampleCall(Int32Array.from([...prompt, ...tokens]), {
        baseModel: "random",
        maxTokens: 0,
        promptLogprobs: true,
      }),
    );
    expect(logprobs).toEqual(scored.promptLogprobs!.slice(prompt.length));
    expect(Math.max(...logprobs)).toBeLessThan(0);
  });

  it("ends by itself where there is no token to end with", async () => {
    const { sequences } = await ask(schemaOf({ enum: [[1], [2]] }), { stopTokens: [] });
    expect(sequences[0]!.stopReason).toBe("stop");
    expect(["[1]", "[2]"]).toContain(tokenizer.decode([...sequences[0]!.tokens]));
  });

  it("is refused where a stop could cut it; special tokens may be given as texts", async () => {
    await expect(ask({ type: "json_object" }, { stopStrings: ["}"] })).rejects.toThrow(
      'stop: JSON output ends by itself, and the text "}"',
    );
    await expect(ask({ type: "json_object" }, { stopTokens: [5] })).rejects.toThrow("the token 5");
    const { sequences } = await ask(
      { type: "json_object" },
      { stopTokens: [], stopStrings: ["<|endoftext|>"] },
    );
    expect(sequences[0]!.tokens.at(-1)).toBe(509);
  });

  it("can be cancelled, and others go on", async () => {
    const call = sampleCall(prompt, {
      baseModel: "random",
      maxTokens: 1500,
      constraint: schemaOf({ type: "string", minLength: 3000 }),
      stopTokens: [END],
    });
    const cancelled = expect(engine.sample(call)).rejects.toBeInstanceOf(CancelledError);
    const other = texts({ type: "json_object" });
    setTimeout(() => engine.cancelSample(call.requestId), 50);
    await cancelled;
    expect(JSON.parse((await other)[0]!)).toBeTypeOf("object");
  });

  it("needs a tokenizer whose tokens are bytes", async () => {
    const folder = await newModel(3);
    rmSync(join(folder, "tokenizer.json"));
    const lacking = await createEngineCore({ models: [{ name: "m", path: folder }], threads: 1 });
    const call = sampleCall(prompt, { baseModel: "m", constraint: { type: "json_object" } });
    await expect(lacking.sample(call)).rejects.toThrow("JSON output needs a tokenizer.json");
    await lacking.close();
    const words = JSON.parse(readFileSync(join(NANO, "tokenizer.json"), "utf8"));
    writeFileSync(
      join(folder, "tokenizer.json"),
      JSON.stringify({ ...words, decoder: { type: "WordPiece" } }),
    );
    const wordPieces = await createEngineCore({ models: [{ name: "m", path: folder }], threads: 1 });
    await expect(wordPieces.sample(call)).rejects.toThrow("a tokenizer whose tokens are bytes");
    await wordPieces.close();
  });
});

describe("a schema that cannot be promised", () => {
  it.each([
    [{ not: {} }, '#: "not" is not supported'],
    [{ type: "integer", multipleOf: 3 }, '"multipleOf" is not supported'],
    [{ type: "object", properties: { a: { uniqueItems: true } } }, '#/properties/a: "uniqueItems"'],
    [{ if: {} }, '"if" is not supported'],
    [{ patternProperties: {} }, '"patternProperties" is not supported'],
    [{ contains: {} }, '"contains" is not supported'],
    [{ anyOf: [{ propertyNames: {} }] }, '#/anyOf/0: "propertyNames"'],
    [
      { $ref: "#/$defs/a", $defs: { a: { unevaluatedProperties: false } } },
      '#/$defs/a: "unevaluatedProperties"',
    ],
    [{ $ref: "https://example.com/x" }, '"$ref" must point into the same schema'],
    [{ $ref: "#/$defs/gone" }, "there is nothing"],
    [{ $ref: "#/%zz" }, "there is nothing"],
    [{ $ref: "#" }, "no JSON that the model's tokens can write fits"],
    [{ allOf: [{ $ref: "#" }, { type: "string" }] }, "refer to themselves"],
    [{ oneOf: [{ type: "number" }, { type: "integer" }] }, '"oneOf" is supported where'],
    [{ oneOf: [{ type: "object" }, { type: "object", required: ["a"] }] }, "0 and 1 may both fit"],
    [{ type: "string", format: "iri" }, 'the "format" "iri" is not supported'],
    [{ type: "string", pattern: "(?=a)" }, "looks around"],
    [{ type: "string", pattern: "(a)\\1" }, "has the escape \\1"],
    [{ type: "string", pattern: "\\bx" }, "has the escape \\b"],
    [{ type: "string", pattern: "a{9999}" }, "repeats more than 1000 times"],
    [{ type: "string", pattern: "[a" }, "ends too early"],
    [{ type: "string", pattern: "a", maxLength: 3 }, '"pattern" together with "maxLength"'],
    [{ type: "object", minProperties: 4, additionalProperties: true }, '"minProperties" is supported'],
    [{ properties: { a: true, b: true }, maxProperties: 1 }, '"maxProperties" is supported'],
    [{ type: "date" }, '"type" must be one or several of'],
    [{ type: "string", minLength: -1 }, '"minLength" must be a whole number'],
    [{ minimum: "3" }, '"minimum" must be a number'],
    [{ items: [{}] }, 'called "prefixItems"'],
    [{ properties: { a: 3 } }, "#/properties/a: a schema must be"],
    [{ anyOf: [] }, "#/anyOf: must be a list"],
    [{ enum: [] }, "no JSON that the model's tokens can write fits"],
    [{ type: "integer", minimum: 2, maximum: 1 }, "no JSON that the model's tokens can write fits"],
    [{ allOf: [{ type: "string" }, { type: "null" }] }, "no JSON that the model's tokens can write fits"],
    ["text", "#: a schema must be an object"],
    [null, "#: a schema must be an object"],
  ])("%j is refused by name", async (schema, message) => {
    await expect(ask(schemaOf(schema))).rejects.toThrow(message);
    await expect(ask(schemaOf(schema))).rejects.toBeInstanceOf(EngineInputError);
  });

  it("does not hold up the tokens of others: one new schema is compiled for each of them", async () => {
    let compiled = 0;
    const hostile = Array.from({ length: 40 }, (_, index) =>
      ask(schemaOf({ allOf: [{ const: index }, { $ref: "#/nowhere" }] }), { owner: "attacker" }).catch(() => {
        compiled += 1;
      }),
    );
    await ask(undefined, { owner: "neighbour", maxTokens: 8, stopTokens: [] });
    expect(compiled).toBeLessThan(20);
    await Promise.all(hostile);
    expect(compiled).toBe(40);
  });

  it("is refused soon however large or deep it is", async () => {
    let deep: unknown = { type: "string" };
    for (let level = 0; level < 3000; level++) deep = { type: "array", items: deep };
    await expect(ask(schemaOf(deep))).rejects.toThrow("levels deep");
    for (let level = 0; level < 200_000; level++) deep = { type: "array", items: deep };
    await expect(ask(schemaOf(deep))).rejects.toThrow("levels deep");
    const wide = {
      allOf: Array.from({ length: 12 }, () => ({
        anyOf: [{ minimum: 1 }, { maximum: 2 }, { minLength: 1 }],
      })),
    };
    await expect(ask(schemaOf(wide))).rejects.toThrow("takes more than 50000 steps");
    const growing = {
      $defs: {
        a: { properties: { x: { allOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/b" }] } } },
        b: { properties: { x: { allOf: [{ $ref: "#/$defs/b" }, { $ref: "#/$defs/a" }] } } },
      },
      allOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/b" }],
    };
    await expect(ask(schemaOf(growing))).rejects.toThrow("refer to themselves");
  });
});

it("an owner whose schemas take much memory uses few of them at a time, and others do not wait for that", async () => {
  const values = Array.from({ length: 2500 }, (_, index) => `value number ${index}`);
  const running = new Set<string>();
  let most = 0;
  const sample = async (owner: string, schema: unknown) => {
    const requestId = `${owner} ${JSON.stringify(schema).length}`;
    const call = sampleCall(prompt, { baseModel: "random", maxTokens: 30, stopTokens: [END] });
    const onToken = () => {
      if (owner === "greedy") most = Math.max(most, running.add(requestId).size);
    };
    await engine.sample({ ...call, requestId, owner, constraint: schemaOf(schema) }, onToken);
    running.delete(requestId);
    return owner;
  };
  const greedy = Array.from({ length: 6 }, (_, index) =>
    sample("greedy", { enum: [...values, "x".repeat(index + 1)] }),
  );
  const others = sample("other", { type: "object", properties: { a: { type: "integer" } } });
  expect(await Promise.race([...greedy.slice(4), others])).toBe("other");
  expect(await Promise.all(greedy)).toHaveLength(6);
  expect(most).toBeGreaterThan(0);
  expect(most).toBeLessThanOrEqual(3);
});
