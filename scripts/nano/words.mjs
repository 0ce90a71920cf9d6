// The words of the word games: real ones from words.txt and pronounceable invented ones.
import { readFileSync } from "node:fs";
import { hashText } from "./random.mjs";

const sections = { nouns: [], others: [] };
let section;
for (const line of readFileSync(new URL("./words.txt", import.meta.url), "utf8").split("\n")) {
  if (line.startsWith("#") || line === "") continue;
  if (line.endsWith(":")) section = line.slice(0, -1);
  else sections[section].push(...line.split(" "));
}

/** One word in ten never appears in a training word game; the evaluation asks for these. */
export const isHeldOutWord = (word) => hashText(`word:${word}`) % 10 === 0;

export const nouns = sections.nouns;
export const words = [...sections.nouns, ...sections.others].sort();
export const trainingWords = words.filter((word) => !isHeldOutWord(word));
export const heldOutWords = words.filter(isHeldOutWord);
const known = new Set(words);
const trainingNouns = nouns.filter((word) => !isHeldOutWord(word));

// Rude stems, rot13, that invented words must not contain.
const blocked = new RegExp(
  "shpx|shp|shk|sbbx|fuvg|phag|qvpx|pbpx|cvff|shx|fhx|snt|avt|wrj|tbbx|fcvp|puvax|xvxr|gvg|phz|frk|nff|nany|nahf|uber|jube|fyhg|gjng|obbo|cbb|cbea|encr|crqb|anmv|qlxr|qnza|uryy|wvm|wvf|jnax|chff|cravf|crav|intva|ihyi|phyg|xvyy|qvr|qrnq|fyng|ergneq|ohgg|ohz|snex|cnxv|uhzc|freug|fcunt|fnyq|cevpx|xabo|gheq|jnt|juvt|pbba|gneq|tnl".replace(
    /[a-z]/g,
    (letter) => String.fromCharCode(((letter.charCodeAt(0) - 97 + 13) % 26) + 97),
  ),
);

const onsets =
  "b c d f g h j k l m n p r s t v w y z b c d f g h l m n p r s t bl br ch cl cr dr fl fr gl gr pl pr qu sc sh sk sl sm sn sp st str sw th tr tw wh spl spr scr thr shr".split(
    " ",
  );
const vowels = "a e i o u a e i o u ai ea ee oa oo ou".split(" ");
const codas =
  "b ck d g l ll m n nd ng nk nt p r rk rm rn rt s sh sk st t th x ft lt mp sp ch tch ss ve ke me ne te le".split(
    " ",
  );
const links = "b d g l m n p r s t v z nd mp st rt nt ll tt dd".split(" ");
const endings = "er y le et in on el ow a o".split(" ");

/** An invented word of 3 to 9 letters that is none of the real ones. */
export function inventWord(random) {
  for (;;) {
    let word = random.chance(0.87) ? random.pick(onsets) : "";
    word += random.pick(vowels);
    const shape = random.unit();
    if (shape < 0.6) word += random.pick(codas);
    else if (shape < 0.84) word += random.pick(links) + random.pick(endings);
    else word += random.pick(links) + random.pick(vowels) + random.pick(codas);
    if (word.length >= 3 && word.length <= 9 && !blocked.test(word) && !known.has(word)) return word;
  }
}

/** A real word with probability 0.6, an invented one otherwise. */
export const drawWord = (random) => (random.chance(0.6) ? random.pick(trainingWords) : inventWord(random));

/** As `drawWord`, but real words are nouns whose plural follows the rules. */
export const drawNoun = (random) => (random.chance(0.6) ? random.pick(trainingNouns) : inventWord(random));

export function pluralOf(noun) {
  if (/(s|x|z|ch|sh)$/.test(noun)) return `${noun}es`;
  if (/[^aeiou]y$/.test(noun)) return `${noun.slice(0, -1)}ies`;
  return `${noun}s`;
}

/** The consonants a word begins with ("str" of "string"; "qu" counts as one), maybe none. */
export function onsetOf(word) {
  return /^(?:[^aeiouyq]*qu|y(?=[aeiou])|[^aeiouy]*)/.exec(word)[0];
}
