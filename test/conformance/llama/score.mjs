// `node score.mjs FOLDER` runs llama.cpp, which npm has installed in FOLDER. Standard input is a JSON list of jobs
// `{ file, adapter?, tokens, texts? }`. Standard output is a line for each: the logprobs of all tokens at each position, and
// the tokens of the texts.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const entry = join(process.argv[2], "node_modules/node-llama-cpp/dist/index.js");
const { getLlama } = await import(pathToFileURL(entry).href);
const jobs = JSON.parse(readFileSync(0, "utf8"));
const llama = await getLlama({ gpu: false, build: "never", skipDownload: true, logLevel: "error" });

/** The model's own precision: no rounding of what attention keeps. */
const EXACT = {
  contextSize: 256,
  threads: 1,
  flashAttention: false,
  experimentalKvCacheKeyType: "F32",
  experimentalKvCacheValueType: "F32",
};

for (const { file, adapter, tokens = [], texts = [] } of jobs) {
  const model = await llama.loadModel({ modelPath: file });
  const lora = adapter === undefined ? {} : { lora: { adapters: [{ filePath: adapter }] } };
  const context = await model.createContext({ ...EXACT, ...lora });
  const found =
    tokens.length === 0
      ? []
      : await context
          .getSequence()
          .controlledEvaluate(tokens.map((token) => [token, { generateNext: { logits: true } }]));
  const logprobs = found.map(({ next }) => {
    const logits = [];
    for (const [token, logit] of next.logits) logits[token] = logit;
    const most = Math.max(...logits);
    const sum = most + Math.log(logits.reduce((total, logit) => total + Math.exp(logit - most), 0));
    return logits.map((logit) => logit - sum);
  });
  const encoded = texts.map((text) => model.tokenize(text, true));
  const line = JSON.stringify({ logprobs, encoded, type: model.typeDescription });
  await new Promise((done) => process.stdout.write(`${line}\n`, done));
  await context.dispose();
  await model.dispose();
}
process.exit(0);
