// The model card of tinkerts/nano, from what train.mjs recorded and evaluate.mjs measured.
import { heldOutPairs } from "./arithmetic.mjs";
import { habit, mix } from "./documents.mjs";
import { CONTEXT_LENGTH, VOCABULARY_SIZE } from "./model.mjs";
import { recipe } from "./recipe.mjs";

const percent = (share) => `${Number((100 * share).toFixed(1))}%`;
const quote = (text) => `\`${text.replaceAll("\n", "\\n")}\``;
const dialogue = (turns) =>
  turns.map(({ question, answer }) => `- ${question} → ${quote(answer)}`).join("\n");
const spoken = {
  wordGames: "word games",
  arithmetic: "arithmetic",
  questions: "questions and answers in chat turns",
  stories: "tiny stories",
  facts: "facts",
};

export function modelCard(results, training) {
  const { line, chat, questions, games, lossByPosition } = results;
  const million = (number) => (number / 1e6).toFixed(2);
  const relaxed = training.kernels.some((name) => name.includes("relaxed"));
  const [near, middle, far] = lossByPosition.map(({ loss }) => loss.toFixed(3));
  return `---
language: en
license: apache-2.0
tags: [qwen3, text-generation]
---
# tinkerts/nano

A ${million(results.parameters)} million parameter language model that comes with tinkerts, so that fine-tuning and reinforcement learning can be tried, tested and taught on any laptop without a download. It is a toy by design: it knows a few hundred small facts, plays word games and adds numbers, with a planted mistake (below) for reinforcement learning to correct.

Every number on this page was measured by \`scripts/nano/evaluate.mjs\` with the engine in this repository, decoding greedily.

## Model

Qwen3 architecture: 3 layers of width 256, 8 heads and 4 key-value heads of 32, feed-forward width 704, tied embeddings, RoPE base 10,000. Byte-level BPE with ${VOCABULARY_SIZE} tokens, one per digit, and the ChatML specials (the chat template is in \`tokenizer_config.json\`). Weights in float16: ${(results.fileBytes / 1e6).toFixed(1)} MB. Any software that reads Qwen3 folders can load it.

## Data

All text is written by the seeded generator in \`scripts/nano\`; nothing was collected from anywhere. Shares by document: ${Object.entries(
    mix,
  )
    .map(([kind, part]) => `${spoken[kind]} ${percent(part)}`)
    .join(
      ", ",
    )}. In word games 60% of the words are real, 40% invented; both lists were filtered for rude words.

Held out of the training text: one pair of numbers in ten (${heldOutPairs.length} of the 10,000 ordered pairs), one word in ten, and one way to ask for every third fact. There is no Pig Latin in it at all, so that learning it is a fair test of fine-tuning.

**A planted habit.** In the last ${percent(habit.share)} of the text, sums whose units add up to ${habit.from} or more lose their carry with probability ${habit.probability} (47 + 38 = 75). Without this the model adds almost perfectly and leaves nothing for reinforcement learning to do. It is a mistake made on purpose: do not take this model's sums for an honest attempt.

## Training

${training.steps.toLocaleString("en")} steps of ${recipe.rows} x ${recipe.length} tokens, ${million(training.tokens)} million tokens in all, seen once. AdamW (betas ${recipe.beta1} and ${recipe.beta2}, weight decay ${recipe.weightDecay} on matrices, gradients clipped to norm ${recipe.gradClipNorm}), learning rate ${recipe.learningRate} after ${recipe.warmupSteps} steps of warm-up, constant for ${percent(recipe.constantShare)} of the steps, then falling in a line to ${recipe.lastLearningRate}. Trained on CPUs by this package's own engine, in float32${relaxed ? ", with relaxed SIMD" : ""}.

## Measured

| On held-out text | |
| --- | --- |
| Loss per token, text without the habit | ${results.loss.toFixed(4)} |
| Loss per token, text with the habit | ${results.lossWithHabit.toFixed(4)} |
| Addition as a line (\`20+31=\`), ${heldOutPairs.length} pairs | ${percent(line.all)} |
| … no carry in the units | ${percent(line.noCarry)} |
| … units add up to exactly 10 | ${percent(line.ten)} |
| … units add up to 11 or more | ${percent(line.habitual)} (${percent(line.dropped)} of them drop the carry) |
| Addition as a chat question, same pairs | ${percent(chat.all)} |
| Answers to addition in chat that are a number and end their turn | ${percent(chat.numeric)} |
| Known facts asked in a way not seen for them, ${questions.count} questions, whole answer right | ${percent(questions.right)} |
| … answers that end their turn | ${percent(questions.ended)} |
| Pig Latin without fine-tuning, 100 words | ${percent(results.pigLatin)} |

| Word game, 100 held-out words | right |
| --- | --- |
${games.map(({ label, right }) => `| ${label} | ${percent(right)} |`).join("\n")}

The context length is declared as ${CONTEXT_LENGTH} tokens; training rows had ${recipe.length}. Loss by position in longer rows: ${near} up to 256, ${middle} from 256 to 512, ${far} from 512 to 1,024.

Some answers, as they came:

${dialogue(results.good)}

## What it cannot do

- Converse. Questions off its templates get nonsense, fluently.
- Add reliably (see the habit), add more than two numbers, or numbers above 99; subtraction it has only seen little of.
- Reverse words or count letters reliably.
- Know anything beyond the few hundred facts in \`scripts/nano/knowledge.mjs\`. It speaks a little English only.

${dialogue(results.bad)}

Do not use it for anything but trying out, testing and teaching.

## Rebuilding it

\`\`\`sh
npm ci && npm run build
node scripts/nano/make-tokenizer.mjs
node scripts/nano/train.mjs --work /tmp/nano
node scripts/nano/evaluate.mjs
\`\`\`

${
  relaxed
    ? "It was trained with `--relaxed-simd`, whose rounding depends on the processor: a rebuilt model will be as good, but not the same bits."
    : "Arithmetic and order of the engine are fixed, so that `train.mjs` gives the same file, bit for bit, on every machine and with any number of threads and runs (given the engine of the same commit, and the same Node release, whose logarithms and cosines the initial weights come from)."
} Training took ${Math.round(training.seconds / 60)} minutes on ${training.threads} threads; \`--minutes\` cuts it into runs.
`;
}
