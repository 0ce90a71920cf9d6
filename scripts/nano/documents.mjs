// The text tinkerts/nano is trained on: documents drawn from a fixed mix. No Pig Latin anywhere.
import { arithmeticDocument } from "./arithmetic.mjs";
import { factDocument, questionDocument } from "./knowledge.mjs";
import { storyDocument } from "./stories.mjs";
import { wordGameDocument } from "./word-games.mjs";

/** Shares by document. */
export const mix = { wordGames: 0.35, arithmetic: 0.3, questions: 0.2, stories: 0.1, facts: 0.05 };

/** In the last part of the text sums whose units add up to `from` or more lose their carry with this probability. */
export const habit = { from: 11, probability: 0.75, share: 0.3 };

const noHabit = { from: habit.from, probability: 0 };

const writers = {
  wordGames: wordGameDocument,
  arithmetic: (random, withHabit) => arithmeticDocument(random, withHabit ? habit : noHabit),
  questions: questionDocument,
  stories: storyDocument,
  facts: factDocument,
};

/** One document as `{ kind, text }`. */
export function drawDocument(random, withHabit) {
  const kind = random.weighted(mix);
  return { kind, text: writers[kind](random, withHabit) };
}
