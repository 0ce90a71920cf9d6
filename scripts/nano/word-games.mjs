// Word games: one short question about the letters of a word, asked as lines of text or as a chat turn.
import { chat } from "./chat.mjs";
import { drawNoun, drawWord, onsetOf, pluralOf } from "./words.mjs";

const letters = (word) => [...word];
const suffixes = ["s", "er", "ing", "ed", "ly", "ness", "less", "ful", "en", "ish", "ism", "let"];
const alphabet = "abcdefghijklmnopqrstuvwxyz";

// Each game: its label, its answer, and how to ask for it in a chat. `share` weighs how often it is drawn.
export const games = [
  { name: "letters", share: 4, label: "Letters", ask: "Spell %.", answer: (word) => letters(word).join(" ") },
  {
    name: "apart",
    share: 2,
    label: "Apart",
    ask: "Put dashes between the letters of %.",
    answer: (word) => letters(word).join("-"),
  },
  {
    name: "first",
    share: 2,
    label: "First letter",
    ask: "What is the first letter of %?",
    answer: (word) => word[0],
  },
  {
    name: "last",
    share: 2,
    label: "Last letter",
    ask: "What is the last letter of %?",
    answer: (word) => word[word.length - 1],
  },
  {
    name: "upper",
    share: 2,
    label: "Upper case",
    ask: "Write % in upper case.",
    answer: (word) => word.toUpperCase(),
  },
  {
    name: "plural",
    share: 2,
    label: "Plural",
    ask: "What is the plural of %?",
    draw: drawNoun,
    answer: pluralOf,
  },
  {
    name: "start",
    share: 3,
    label: "Start",
    ask: "Which consonants does % start with?",
    answer: (word) => onsetOf(word) || "none",
  },
  {
    name: "rest",
    share: 5,
    label: "Rest",
    ask: "Write % without the consonants at the start.",
    answer: (word) => word.slice(onsetOf(word).length),
  },
  {
    name: "split",
    share: 4,
    label: "Split",
    ask: "Split % after the consonants at the start.",
    answer: (word) => (onsetOf(word) ? `${onsetOf(word)} + ${word.slice(onsetOf(word).length)}` : word),
  },
  {
    name: "tail",
    share: 2,
    label: "Without the first letter",
    ask: "Write % without its first letter.",
    answer: (word) => word.slice(1),
  },
  {
    name: "ending",
    share: 2,
    label: "Ends with",
    ask: "What are the last two letters of %?",
    answer: (word) => word.slice(-2),
  },
  { name: "twice", share: 2, label: "Twice", ask: "Write % twice.", answer: (word) => `${word}-${word}` },
  {
    name: "vowels",
    share: 1,
    label: "Vowels",
    ask: "Which vowels are in %?",
    answer: (word) =>
      letters(word)
        .filter((letter) => "aeiou".includes(letter))
        .join(" ") || "none",
  },
  {
    name: "count",
    share: 1,
    label: "Length",
    ask: "How many letters are in %?",
    answer: (word) => String(word.length),
  },
  {
    name: "reverse",
    share: 1,
    label: "Reversed",
    ask: "Write % backwards.",
    answer: (word) => letters(word).reverse().join(""),
  },
];
const shares = Object.fromEntries(games.map((game, index) => [index, game.share]));

const drawGame = (random) => games[Number(random.weighted(shares))];
const question = (game, word) => game.ask.replace("%", word);

/** The prompt of a word game as plain lines, as the evaluation asks it. */
export const gamePrompt = (game, word) => `Word: ${word}\n${game.label}:`;

function lines(random) {
  const kind = random.unit();
  if (kind < 0.14) {
    const word = drawWord(random);
    return random.chance(0.5)
      ? `Letters: ${letters(word).join(" ")}\nWord: ${word}\n`
      : `Start: ${onsetOf(word) || "none"}\nRest: ${word.slice(onsetOf(word).length)}\nWord: ${word}\n`;
  }
  if (kind < 0.22) {
    const word = drawWord(random);
    const suffix = random.pick(suffixes);
    return `${word} + ${suffix} = ${word}${suffix}\n`;
  }
  if (kind < 0.3) {
    const [one, two] = [drawWord(random), drawWord(random)];
    return `Words: ${one} ${two}\nSwapped: ${two} ${one}\n`;
  }
  if (kind < 0.32) {
    const index = random.integer(0, 24);
    return `After ${alphabet[index]} comes ${alphabet[index + 1]}.\n`;
  }
  const game = drawGame(random);
  const word = (game.draw ?? drawWord)(random);
  let text = `${gamePrompt(game, word)} ${game.answer(word)}\n`;
  while (random.chance(0.35)) {
    const next = drawGame(random);
    if (next.draw) continue;
    text += `${next.label}: ${next.answer(word)}\n`;
  }
  return text;
}

/** One document of word games. */
export function wordGameDocument(random) {
  if (random.chance(0.2)) {
    const turns = [];
    do {
      const game = drawGame(random);
      const word = (game.draw ?? drawWord)(random);
      turns.push([question(game, word), game.answer(word)]);
    } while (random.chance(0.3));
    return chat(turns);
  }
  let text = lines(random);
  while (random.chance(0.45)) text += lines(random);
  return text;
}
