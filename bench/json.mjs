// What JSON output costs: drawing a token under a schema beside drawing one freely, from the same logits, for the vocabulary
// of tinkerts/nano and for one of 151,936 tokens made here from words of the sources. `first` is the first answer to a schema,
// `later` are answers to the same schema. Bars: a step of the whole engine with nano keeps 0.8 of its speed, and with the large
// vocabulary a drawn token costs at most 3 ms more than one drawn freely, 10 ms for the first answer to a schema.
// Needs a build: npm run build.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { chooseToken } from "../dist/local/engine/kernels/token-choice.js";
import { philox } from "../dist/local/engine/philox.js";
import { JsonCursor, JsonVocabulary } from "../dist/local/engine/sampling/json/json-sampling.js";
import { startEngine } from "../dist/local/engine/start-engine.node.js";
import { readTokenizerJson } from "../dist/local/tokenizer.js";
import { sized } from "./shared/sized.mjs";

const LARGE_VOCABULARY = sized(151_936, 4_096);
const MAX_TOKENS = 200;
const ANSWERS = sized(10, 2);
const MAX_LATER_MS = 3;
const MAX_FIRST_MS = 10;
const MIN_ENGINE_RATIO = 0.8;

const root = fileURLToPath(new URL("..", import.meta.url));
const nano = join(root, "models/nano");
const choice = { temperature: 1, topK: -1, topP: 1 };

const schemas = {
  record: {
    type: "object",
    properties: {
      title: { type: "string", maxLength: 200 },
      kind: { enum: ["article", "book", "talk"] },
      year: { type: "integer", minimum: 1900, maximum: 2100 },
      score: { type: "number", minimum: 0, maximum: 1 },
      tags: { type: "array", items: { type: "string" }, maxItems: 5 },
      authors: {
        type: "array",
        minItems: 1,
        items: {
          type: "object",
          properties: { name: { type: "string" }, email: { type: "string", format: "email" } },
          required: ["name"],
          additionalProperties: false,
        },
      },
    },
    required: ["title", "kind", "year", "authors"],
    additionalProperties: false,
  },
  text: { type: "object", properties: { text: { type: "string", minLength: 400 } }, required: ["text"] },
};
const constraints = {
  json_object: { type: "json_object" },
  ...Object.fromEntries(
    Object.entries(schemas).map(([name, schema]) => [name, { type: "json_schema", schema }]),
  ),
};

/** A byte-level vocabulary in the way of real ones: every byte, then words and their beginnings, with and without a space. */
function makeLargeVocabulary(folder) {
  const { model, decoder, added_tokens } = JSON.parse(readFileSync(join(nano, "tokenizer.json"), "utf8"));
  const tokens = new Set(Object.keys(model.vocab).filter((token) => [...token].length === 1));
  const text = ["docs", "src", "node_modules/typescript/lib"]
    .flatMap((top) => readdirSync(join(root, top), { recursive: true }).map((file) => join(root, top, file)))
    .filter((file) => /\.(ts|md|json)$/.test(file))
    .sort()
    .map((file) => readFileSync(file, "utf8"))
    .join("\n");
  const words = [...new Set(text.match(/[A-Za-z]+|[^\sA-Za-z0-9"\u0080-\uffff]+/g))];
  for (let length = 2; tokens.size < LARGE_VOCABULARY && length < 14; length += 1) {
    for (const word of words) {
      if (word.length < length) continue;
      for (const form of [word.slice(0, length), `Ġ${word.slice(0, length)}`]) tokens.add(form);
    }
  }
  for (let pair = 0; tokens.size < LARGE_VOCABULARY; pair += 1)
    tokens.add(
      words[pair % words.length] + words[(pair + 1 + Math.floor(pair / words.length)) % words.length],
    );
  const vocab = Object.fromEntries(
    [...tokens].slice(0, LARGE_VOCABULARY - added_tokens.length).map((token, id) => [token, id]),
  );
  const added = added_tokens.map((token, index) => ({
    ...token,
    id: LARGE_VOCABULARY - added_tokens.length + index,
  }));
  writeFileSync(
    join(folder, "tokenizer.json"),
    JSON.stringify({ model: { ...model, vocab }, decoder, added_tokens: added }),
  );
}

/** Logits as a model has them: a few likely tokens, and a long tail. */
function makeLogits(size) {
  return Array.from({ length: 8 }, (_, row) =>
    Float32Array.from(
      { length: size },
      (_, token) => -2 * Math.log((philox(row, [token, 0, 0, 0])[0] + 1) / 2 ** 32) - 3,
    ),
  );
}

function measure(name, folder, size) {
  const rows = makeLogits(size);
  const openedAt = performance.now();
  const vocabulary = new JsonVocabulary(() => readTokenizerJson(folder), size);
  vocabulary.isText(0);
  const readMs = performance.now() - openedAt;
  let draws = 0;
  const random = () => philox(7, [draws++, 0, 0, 0])[0] / 2 ** 32;
  const freeAt = performance.now();
  for (let token = 0; token < MAX_TOKENS; token += 1)
    chooseToken(rows[token % rows.length], choice, random());
  const freeMs = (performance.now() - freeAt) / MAX_TOKENS;
  return Object.entries(constraints).map(([schema, constraint]) => {
    const compiledAt = performance.now();
    const grammar = vocabulary.grammar(constraint);
    const compileMs = performance.now() - compiledAt;
    const perToken = Array.from({ length: ANSWERS }, () => {
      const cursor = new JsonCursor(grammar, [size - 1], MAX_TOKENS);
      const start = performance.now();
      let count = 0;
      for (let token = -1; token !== size - 1; count += 1) {
        token = chooseToken(cursor.mask(rows[count % rows.length]), choice, random());
        cursor.take(token);
      }
      return (performance.now() - start) / count;
    });
    const later = perToken.slice(1);
    return {
      vocabulary: name,
      schema,
      readMs: Math.round(readMs),
      compileMs: Number(compileMs.toFixed(1)),
      freeMsPerToken: Number(freeMs.toFixed(3)),
      firstMsPerToken: Number(perToken[0].toFixed(3)),
      laterMsPerToken: Number((later.reduce((sum, ms) => sum + ms, 0) / later.length).toFixed(3)),
    };
  });
}

/** Tokens a second of the whole engine, with and without a schema, in turns; the best of each counts. */
async function measureEngine() {
  const engine = await startEngine({ models: [{ name: "nano", path: nano }], threads: 1, inThread: true });
  const run = async (changes) => {
    const start = performance.now();
    const { sequences } = await engine.sample({
      requestId: "bench",
      baseModel: "nano",
      prompt: Int32Array.of(1, 2, 3),
      numSamples: 8,
      maxTokens: MAX_TOKENS,
      ...choice,
      seed: 1,
      stopTokens: [511],
      stopStrings: [],
      promptLogprobs: false,
      topkPromptLogprobs: 0,
      topkSampleLogprobs: 0,
      promptAltTokens: 0,
      ...changes,
    });
    const tokens = sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
    return tokens / ((performance.now() - start) / 1000);
  };
  const best = { free: 0, constrained: 0 };
  for (let round = 0; round < sized(6, 1); round += 1) {
    best.free = Math.max(best.free, await run({ stopTokens: [] }));
    best.constrained = Math.max(best.constrained, await run({ constraint: constraints.text }));
  }
  await engine.close();
  return best;
}

const folder = mkdtempSync(join(tmpdir(), "bench-json-"));
try {
  makeLargeVocabulary(folder);
  const all = [...measure("nano", nano, 512), ...measure("large", folder, LARGE_VOCABULARY)];
  const engine = await measureEngine();
  const large = all.filter(({ vocabulary }) => vocabulary === "large");
  const bars = {
    [`nano's engine keeps ${MIN_ENGINE_RATIO} of its speed`]:
      engine.constrained >= MIN_ENGINE_RATIO * engine.free,
    [`151,936 tokens: at most ${MAX_LATER_MS} ms more a token`]: large.every(
      ({ laterMsPerToken, freeMsPerToken }) => laterMsPerToken - freeMsPerToken <= MAX_LATER_MS,
    ),
    [`151,936 tokens, first answer: at most ${MAX_FIRST_MS} ms more a token`]: large.every(
      ({ firstMsPerToken, freeMsPerToken }) => firstMsPerToken - freeMsPerToken <= MAX_FIRST_MS,
    ),
  };
  console.log(
    JSON.stringify({
      bench: "json",
      engineTokensPerSecond: Math.round(engine.free),
      engineTokensPerSecondWithSchema: Math.round(engine.constrained),
      choices: all,
      bars,
      pass: Object.values(bars).every(Boolean),
    }),
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
