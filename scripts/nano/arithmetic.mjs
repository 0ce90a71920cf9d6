// Sums of numbers from 0 to 99, a few differences, and the planted habit of dropping carries.
import { chat } from "./chat.mjs";
import { hashNumbers } from "./random.mjs";

/** One pair in ten, in either order, is never added in the training text. */
export const isHeldOutPair = (a, b) => hashNumbers(77, Math.min(a, b), Math.max(a, b)) % 10 === 0;

export const heldOutPairs = [];
for (let a = 0; a < 100; a++)
  for (let b = 0; b < 100; b++) if (isHeldOutPair(a, b)) heldOutPairs.push([a, b]);

/** What `a + b` comes to when the carry of the units is forgotten: 47 + 38 = 75. */
export const sumWithoutCarry = (a, b) => 10 * (Math.floor(a / 10) + Math.floor(b / 10)) + ((a + b) % 10);

/** Whether the habit can touch this sum: its units add up to `habit.from` or more. */
const underHabit = (a, b, habit) => (a % 10) + (b % 10) >= habit.from;

export const linePrompt = (a, b) => `${a}+${b}=`;
export const questionAbout = (a, b) => `What is ${a} + ${b}?`;

const questions = [
  questionAbout,
  (a, b) => `${a}+${b}=?`,
  (a, b) => `How much is ${a} plus ${b}?`,
  (a, b) => `Add ${a} and ${b}.`,
];

function drawPair(random) {
  for (;;) {
    const high = random.chance(0.12) ? 9 : 99;
    const [a, b] = [random.integer(0, high), random.integer(0, high)];
    if (!isHeldOutPair(a, b)) return [a, b];
  }
}

/** One document of arithmetic. `habit` is `{ from, probability }`; probability 0 adds correctly. */
export function arithmeticDocument(random, habit) {
  const answer = (a, b) =>
    underHabit(a, b, habit) && random.chance(habit.probability) ? sumWithoutCarry(a, b) : a + b;
  const kind = random.unit();
  if (kind < 0.25) {
    const turns = [];
    do {
      const [a, b] = drawPair(random);
      const ask = random.chance(0.7) ? questionAbout : random.pick(questions);
      turns.push([ask(a, b), String(answer(a, b))]);
    } while (random.chance(0.5));
    return chat(turns);
  }
  if (kind < 0.32) {
    let text = "";
    do {
      const [low, rest] = drawPair(random);
      const high = low + rest;
      text += `${high}-${low}=${rest}\n`;
    } while (random.chance(0.7));
    return text;
  }
  const spaced = kind < 0.4;
  let text = "";
  do {
    const [a, b] = drawPair(random);
    text += spaced ? `${a} + ${b} = ${answer(a, b)}\n` : `${linePrompt(a, b)}${answer(a, b)}\n`;
  } while (random.chance(0.85));
  return text;
}
