// Rows of tokens for training: whole documents side by side, every row beginning with a new one.
import { END_OF_TEXT } from "./chat.mjs";
import { drawDocument, habit } from "./documents.mjs";
import { Random } from "./random.mjs";

/** Row `index` of the text with this seed: `length` + 1 tokens, so that input and target are one apart. */
export function makeRow(tokenizer, seed, index, length, withHabit) {
  const random = new Random(seed, index);
  const end = tokenizer.idOf(END_OF_TEXT);
  const row = new Int32Array(length + 1);
  let filled = 0;
  while (filled < row.length) {
    const ids = tokenizer.encode(drawDocument(random, withHabit).text);
    ids.push(end);
    for (let position = 0; position < ids.length && filled < row.length; position++)
      row[filled++] = ids[position];
  }
  return row;
}

/** The rows of one training step; a pure function of the seed and the step, so that training can be resumed. */
export function makeBatch(tokenizer, { seed, step, steps, rows, length }) {
  const withHabit = step >= Math.round(steps * (1 - habit.share));
  return Array.from({ length: rows }, (_, row) =>
    makeRow(tokenizer, seed, step * rows + row, length, withHabit),
  );
}
