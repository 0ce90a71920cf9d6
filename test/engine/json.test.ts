import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import {
  type Engine,
  EngineInputError,
  type JsonConstraint,
  type SampleCall,
} from "../../src/local/engine/engine.js";
import { createWasmKernels } from "../../src/local/engine/kernels/index.js";
import { createEngineCore } from "../../src/local/engine/start-engine.js";
import { FullTrainer } from "../../src/local/engine/training/full-trainer.js";
import { readTokenizer } from "../../src/local/tokenizer.js";
import { sampleCall } from "./engines.js";
import { randomSchema } from "./json-schemas.js";

const END = 511;
const NANO = defaultModel.path;
const tokenizer = readTokenizer(NANO)!;
const folders: string[] = [];
let engine: Engine;

const ajv = new Ajv2020({ strict: false, allErrors: true, ownProperties: true });
addFormats.default(ajv);

/** Nothing in it pushes towards JSON: it has nano's tokens, and weights by chance. */
async function randomModel(seed: number): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "json-"));
  folders.push(folder);
  const kernels = createWasmKernels({ threads: 1 });
  const shape = {
    model_type: "qwen3",
    hidden_size: 32,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 16,
    intermediate_size: 64,
    vocab_size: 512,
    max_position_embeddings: 2048,
    tie_word_embeddings: true,
    eos_token_id: END,
  };
  await FullTrainer.create(kernels, shape, { seed, deviation: 0.3 }).save(folder);
  await kernels.close();
  copyFileSync(join(NANO, "tokenizer.json"), join(folder, "tokenizer.json"));
  return folder;
}

beforeAll(async () => {
  engine = createEngineCore({
    models: [
      { name: "random", path: await randomModel(1) },
      { name: "other", path: await randomModel(2) },
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
  it("fits 300 generated schemas, whatever the model, the seed and the sampling settings", async () => {
    const settings = [
      { baseModel: "random", temperature: 1 },
      { baseModel: "other", temperature: 1.7, topP: 0.9 },
      { baseModel: "nano", temperature: 1, topK: 5 },
      { baseModel: "random", temperature: 0 },
    ];
    const refused: string[] = [];
    await Promise.all(
      Array.from({ length: 300 }, async (_, seed) => {
        const schema = randomSchema(seed);
        for (const [index, setting] of settings.entries()) {
          try {
            const found = await texts(schemaOf(schema), {
              ...setting,
              seed: seed * 10 + index,
              numSamples: 2,
              maxTokens: 200,
            });
            for (const text of found) expectFits(schema, text);
          } catch (error) {
            if (!(error instanceof EngineInputError)) throw error;
            refused.push(`${error.message} ${JSON.stringify(schema)}`);
          }
        }
      }),
    );
    expect(refused).toEqual([]);
  }, 300_000);
});
