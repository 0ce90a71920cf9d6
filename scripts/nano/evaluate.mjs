// Measures tinkerts/nano with this repository's engine and writes its model card; needs `npm run build` first.
//   node scripts/nano/evaluate.mjs [--model FOLDER] [--threads N] [--no-card]
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { createWasmKernels } from "../../dist/local/engine/kernels/wasm-kernels.node.js";
import { FullTrainer } from "../full-trainer.mjs";
import { greedyAnswers } from "./answers.mjs";
import { heldOutPairs, linePrompt, questionAbout, sumWithoutCarry } from "./arithmetic.mjs";
import { makeRow } from "./batches.mjs";
import { ByteLevelTokenizer } from "./bpe.mjs";
import { modelCard } from "./card.mjs";
import { chatPrompt, END_OF_TEXT, TURN_END } from "./chat.mjs";
import { answerAbout, askAbout, heldOutTemplate, relations } from "./knowledge.mjs";
import { MODEL_FOLDER } from "./model.mjs";
import { recipe } from "./recipe.mjs";
import { gamePrompt, games } from "./word-games.mjs";
import { heldOutWords, nouns, onsetOf } from "./words.mjs";

const { values: flags } = parseArgs({
  options: {
    model: { type: "string", default: fileURLToPath(MODEL_FOLDER) },
    threads: { type: "string", default: String(Math.min(8, availableParallelism())) },
    card: { type: "boolean", default: true },
  },
  allowNegative: true,
});

const HELD_OUT_SEED = 99;
const readJson = (path) => JSON.parse(readFileSync(path, "utf8"));
const tokenizer = new ByteLevelTokenizer(readJson(new URL("tokenizer.json", MODEL_FOLDER)));
const kernels = createWasmKernels({ threads: Number(flags.threads) });
const trainer = FullTrainer.load(kernels, flags.model);
const share = (list) => list.filter(Boolean).length / list.length;

async function heldOutLoss({ rows, length, withHabit = false, from = 0, to = length }) {
  const weights = Float32Array.from({ length }, (_, position) => (position >= from && position < to ? 1 : 0));
  const examples = Array.from({ length: rows }, (_, index) => {
    const row = makeRow(tokenizer, HELD_OUT_SEED, index, length, withHabit);
    return { tokens: row.subarray(0, length), targets: row.subarray(1), weights };
  });
  return trainer.evaluate(examples);
}

const newline = tokenizer.encode("\n")[0];
const endOfText = tokenizer.idOf(END_OF_TEXT);
const turnEnd = tokenizer.idOf(TURN_END);

/** Greedy answers as text; null where the model did not stop. */
function answer(prompts, stop, maxTokens) {
  const ids = prompts.map((prompt) => tokenizer.encode(prompt));
  return greedyAnswers(kernels, trainer.model, ids, { stopTokens: [stop, endOfText], maxTokens }).map(
    (tokens) => tokens && tokenizer.decode(tokens),
  );
}

function addition(promptOf, stop) {
  const answers = answer(
    heldOutPairs.map(([a, b]) => promptOf(a, b)),
    stop,
    4,
  );
  const results = heldOutPairs.map(([a, b], index) => ({
    units: (a % 10) + (b % 10),
    right: answers[index] === String(a + b),
    dropped: answers[index] === String(sumWithoutCarry(a, b)),
    numeric: /^\d+$/.test(answers[index] ?? ""),
  }));
  const habitual = results.filter(({ units }) => units >= 11);
  return {
    all: share(results.map(({ right }) => right)),
    noCarry: share(results.filter(({ units }) => units < 10).map(({ right }) => right)),
    ten: share(results.filter(({ units }) => units === 10).map(({ right }) => right)),
    habitual: share(habitual.map(({ right }) => right)),
    dropped: share(habitual.map(({ dropped }) => dropped)),
    numeric: share(results.map(({ numeric }) => numeric)),
  };
}

function questions() {
  const asked = relations.flatMap((relation) =>
    relation.pairs
      .map((pair) => ({ pair, template: heldOutTemplate(relation, pair) }))
      .filter(({ template }) => template >= 0)
      .map(({ pair, template }) => ({
        question: askAbout(relation, pair, template),
        wanted: answerAbout(relation, pair),
      })),
  );
  const answers = answer(
    asked.map(({ question }) => chatPrompt(question)),
    turnEnd,
    40,
  );
  return {
    count: asked.length,
    right: share(asked.map(({ wanted }, index) => answers[index] === wanted)),
    ended: share(answers.map((text) => text !== null)),
  };
}

function wordGame(game) {
  const words = heldOutWords.filter((word) => !game.draw || nouns.includes(word)).slice(0, 100);
  const answers = answer(
    words.map((word) => gamePrompt(game, word)),
    newline,
    30,
  );
  return share(words.map((word, index) => answers[index] === ` ${game.answer(word)}`));
}

function pigLatin() {
  const words = heldOutWords.slice(0, 100);
  const wanted = (word) => {
    const onset = onsetOf(word);
    return onset ? ` ${word.slice(onset.length)}-${onset}ay` : ` ${word}-way`;
  };
  const answers = answer(
    words.map((word) => `English: ${word}\nPig Latin:`),
    newline,
    20,
  );
  return share(words.map((word, index) => answers[index] === wanted(word)));
}

const transcript = (asked) => {
  const answers = answer(asked.map(chatPrompt), turnEnd, 40);
  return asked.map((question, index) => ({ question, answer: answers[index] ?? "(does not stop)" }));
};

const { length } = recipe;
const results = {
  parameters: trainer.parameters,
  fileBytes: statSync(join(flags.model, "model.safetensors")).size,
  loss: await heldOutLoss({ rows: 128, length }),
  lossWithHabit: await heldOutLoss({ rows: 128, length, withHabit: true }),
  // The same text in longer rows: does the model still predict well where training never went?
  lossByPosition: [
    [0, 256],
    [256, 512],
    [512, 1024],
  ],
  line: addition(linePrompt, newline),
  chat: addition((a, b) => chatPrompt(questionAbout(a, b)), turnEnd),
  questions: questions(),
  games: games.map((game) => ({ label: game.label, right: wordGame(game) })),
  pigLatin: pigLatin(),
  good: transcript([
    "Who are you?",
    "What is the capital of France?",
    "What is 20 + 31?",
    "Spell stone.",
    "What does a cow say?",
  ]),
  bad: transcript([
    "What is 47 + 38?",
    "Write garden backwards.",
    "Why is the sky blue?",
    "Please write a poem about the sea.",
  ]),
};
for (const [index, [from, to]] of results.lossByPosition.entries())
  results.lossByPosition[index] = { from, to, loss: await heldOutLoss({ rows: 32, length: 1024, from, to }) };
await kernels.close();

console.log(JSON.stringify(results, null, 2));
const inBand = results.line.all >= 0.55 && results.line.all <= 0.7;
if (!inBand) {
  console.error(
    `greedy addition is at ${results.line.all.toFixed(3)}, outside 0.55 to 0.70: do not ship this one`,
  );
  process.exitCode = 1;
}
if (flags.card) {
  const training = readJson(new URL("training.json", MODEL_FOLDER));
  writeFileSync(new URL("README.md", MODEL_FOLDER), modelCard(results, training));
}
