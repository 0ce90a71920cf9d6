import { type CodePoints, complement, SURROGATES, utf8 } from "./characters.js";
import { choice, type GrammarNode, literal, type RuleNode, repeat, rule, sequence } from "./grammar.js";
import { type CharacterForm, patternText } from "./pattern.js";
import type { Part } from "./schema-parts.js";
import { patternNode } from "./value-grammar.js";

/** Nodes of a character of several bytes, and of a pattern for each of its characters. */
const CHARACTER_SIZE = 16;
const PATTERN_SIZE = 8;

const single = (character: string): CodePoints[number] => [
  character.codePointAt(0)!,
  character.codePointAt(0)!,
];

/** Any text in which none of these occurs. `count` is called before nodes are made. */
export function textWithout(forbidden: readonly string[], count: (nodes: number) => void): GrammarNode {
  const texts = forbidden.filter((text) => text !== "").map((text) => [...text]);
  const states = [
    ...new Set(texts.flatMap((text) => text.map((_, length) => text.slice(0, length).join("")))),
  ];
  if (states.length === 0) return repeat(utf8(complement(SURROGATES)), 0);
  const letters = [...new Set(texts.flat())];
  /** The longest beginning of one of the texts that the written text ends with. */
  const after = (state: string, letter: string): string | undefined => {
    const written = state + letter;
    if (forbidden.some((text) => text !== "" && written.endsWith(text))) return undefined;
    return states.filter((each) => written.endsWith(each)).sort((a, b) => b.length - a.length)[0]!;
  };
  const rules = new Map<string, RuleNode>(states.map((state) => [state, rule()]));
  const other = utf8(complement([...SURROGATES, ...letters.map(single)]));
  for (const [state, node] of rules) {
    count(CHARACTER_SIZE * (letters.length + 1));
    const options = letters.flatMap((letter) => {
      const next = after(state, letter);
      return next === undefined ? [] : [sequence(literal(letter), rules.get(next)!)];
    });
    node.body = choice(sequence(), sequence(other, rules.get("")!), ...options);
  }
  return rules.get("")!;
}

/** Characters of a text that stands between tags: those that may begin a tag are left out. */
const TEXT_CHARACTERS: CharacterForm = {
  any: textCharacter([]),
  of: (codePoints) => textCharacter(complement(codePoints)),
  named: new Map(),
};

function textCharacter(except: CodePoints): GrammarNode {
  return utf8(complement([...SURROGATES, single("<"), ...except]));
}

/** Texts of a length, a pattern or a format, as they are. */
export function rawText(part: Part, path: string, count: (nodes: number) => void): GrammarNode {
  const { minLength, maxLength } = part.numbers;
  if (part.pattern === undefined && part.format === undefined)
    return repeat(TEXT_CHARACTERS.any, minLength ?? 0, maxLength);
  if (part.pattern !== undefined) count(PATTERN_SIZE * part.pattern.length);
  return patternNode(part, path, (pattern) => patternText(pattern, TEXT_CHARACTERS));
}
