// Compiles one schema with our grammars: `node ours.mjs SCHEMA.json`. The last line is JSON.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { JsonVocabulary } from "../../dist/local/engine/sampling/json/json-sampling.js";
import { readTokenizerJson } from "../../dist/local/tokenizer.js";
import { report } from "./report.mjs";

const nano = fileURLToPath(new URL("../../models/nano", import.meta.url));
const vocabulary = new JsonVocabulary(() => readTokenizerJson(nano), 512);
vocabulary.isText(0);
const schema = JSON.parse(readFileSync(process.argv[2], "utf8"));
await report(() => {
  const grammar = vocabulary.grammar({ type: "json_schema", schema });
  grammar.mask(grammar.start, 10_000);
});
