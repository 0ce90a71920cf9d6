// Trains the tokenizer of tinkerts/nano and writes every file of models/nano but the weights and the model card.
//   node scripts/nano/make-tokenizer.mjs
import { mkdirSync, writeFileSync } from "node:fs";
import { MODEL_FOLDER } from "./model.mjs";
import { modelFiles } from "./model-files.mjs";

mkdirSync(MODEL_FOLDER, { recursive: true });
for (const [name, content] of Object.entries(modelFiles())) {
  writeFileSync(new URL(name, MODEL_FOLDER), content);
  console.log(`models/nano/${name}: ${content.length} bytes`);
}
