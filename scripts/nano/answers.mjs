// Greedy answers straight from the decoder, many prompts at once.
import { scratchInts, takeRows } from "../../dist/local/engine/model/decoder.js";
import { linearForward } from "../../dist/local/engine/model/linear.js";
import { packedForward, packSequences } from "../../dist/local/engine/model/packed-forward.js";

const MAX_ROWS = 4096;

/** For each prompt (an array of token ids) the greedy continuation up to, and without, a stop token; null if none came. */
export function greedyAnswers(kernels, model, prompts, { stopTokens, maxTokens }) {
  const texts = prompts.map((prompt) => [...prompt]);
  const answers = prompts.map(() => null);
  let open = prompts.map((_, index) => index);
  for (let drawn = 0; drawn <= maxTokens && open.length > 0; drawn++) {
    const next = nextTokens(
      kernels,
      model,
      open.map((index) => texts[index]),
    );
    open = open.filter((index, place) => {
      if (stopTokens.includes(next[place])) {
        answers[index] = texts[index].slice(prompts[index].length);
        return false;
      }
      texts[index].push(next[place]);
      return true;
    });
  }
  return answers;
}

function nextTokens(kernels, model, texts) {
  const next = [];
  for (let start = 0; start < texts.length; ) {
    let [end, rows] = [start, 0];
    while (end < texts.length && (rows === 0 || rows + texts[end].length <= MAX_ROWS))
      rows += texts[end++].length;
    next.push(...likeliest(kernels, model, texts.slice(start, end)));
    start = end;
  }
  return next;
}

function likeliest(kernels, model, texts) {
  const { hiddenSize, vocabSize } = model.config;
  const mark = kernels.mark();
  const packed = packSequences(
    kernels,
    texts.map((text) => Int32Array.from(text)),
  );
  const { hidden } = packedForward(kernels, model, packed, undefined, "nothing");
  let row = -1;
  const lastRows = Int32Array.from(texts, (text) => (row += text.length));
  const ends = takeRows(kernels, hidden, scratchInts(kernels, lastRows), hiddenSize);
  const logits = kernels.scratch(texts.length * vocabSize);
  const { head } = model.weights;
  linearForward(kernels, { layer: head, out: logits, x: ends, rows: texts.length, adapters: [] });
  const values = kernels.view(logits);
  const best = texts.map((_, index) => {
    const scores = values.subarray(index * vocabSize, (index + 1) * vocabSize);
    return scores.indexOf(Math.max(...scores));
  });
  kernels.release(mark);
  return best;
}
