import {
  anyCharacterOf,
  byteRanges,
  choice,
  type GrammarNode,
  literal,
  repeat,
  sequence,
} from "./grammar.js";

/** Code points from the first to the second, both included. */
export type CodePoints = readonly (readonly [from: number, to: number])[];

const LAST_CODE_POINT = 0x10ffff;
/** The last code points of one, two and three bytes. */
const LAST_OF_LENGTH = [0x7f, 0x7ff, 0xffff];
/** Halves of surrogate pairs, which are not characters by themselves. */
export const SURROGATES: CodePoints = [[0xd800, 0xdfff]];
/** Characters that a JSON string must escape. */
const ESCAPED: CodePoints = [
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
];

const HEX = anyCharacterOf("0123456789abcdefABCDEF");

/** Any character inside a JSON string, escaped or not. */
export const anyCharacter: GrammarNode = choice(
  utf8(complement([...ESCAPED, ...SURROGATES])),
  sequence(
    literal("\\"),
    choice(
      anyCharacterOf('"\\/bfnrt'),
      sequence(
        literal("u"),
        choice(
          sequence(anyCharacterOf("0123456789abcABCefEF"), HEX),
          // Without surrogates: half of a pair is not a character.
          sequence(anyCharacterOf("dD"), anyCharacterOf("01234567")),
        ),
        HEX,
        HEX,
      ),
    ),
  ),
);

/** Any JSON string with a number of characters in this range. */
export function anyString(minLength = 0, maxLength = Number.POSITIVE_INFINITY): GrammarNode {
  return sequence(literal('"'), repeat(anyCharacter, minLength, maxLength), literal('"'));
}

/** A character of a class inside a JSON string, in its shortest form. */
export function characterOf(codePoints: CodePoints): GrammarNode {
  const [only] = codePoints;
  // Most characters of a pattern stand for themselves.
  if (codePoints.length === 1 && only![0] === only![1] && only![0] < 0xd800)
    return literal(JSON.stringify(String.fromCodePoint(only![0])).slice(1, -1));
  const escapes: GrammarNode[] = [];
  for (const [from, to] of intersection(codePoints, ESCAPED)) {
    for (let code = from; code <= to; code++)
      escapes.push(literal(JSON.stringify(String.fromCodePoint(code)).slice(1, -1)));
  }
  return choice(utf8(intersection(codePoints, complement([...ESCAPED, ...SURROGATES]))), ...escapes);
}

const PLAIN = complement([...ESCAPED, ...SURROGATES]);
const QUOTE = literal('"');

/** Letters of names that begin alike, each once. */
interface NameTree {
  readonly next: Map<string, NameTree>;
  isName: boolean;
}

/** Nodes of a letter, and of one that is written in several bytes. */
const LETTER_SIZE = 4;
const LONG_LETTER_SIZE = 16;

/**
 * Names of members that are none of these, each character written as itself: an escape could hide one of the names.
 * `count` is called before nodes are made.
 */
export function nameExcept(names: Iterable<string>, count: (nodes: number) => void): GrammarNode {
  const root: NameTree = { next: new Map(), isName: false };
  const trees = [root];
  for (const name of names) {
    let tree = root;
    for (const letter of name) {
      let next = tree.next.get(letter);
      if (!next) {
        count(letter > "\x7f" ? LONG_LETTER_SIZE : LETTER_SIZE);
        next = { next: new Map(), isName: false };
        tree.next.set(letter, next);
        trees.push(next);
      }
      tree = next;
    }
    tree.isName = true;
  }
  const anyRest = sequence(repeat(utf8(PLAIN), 0), QUOTE);
  const letters = new Map<string, GrammarNode>();
  /** Nodes for the same letters are the same. */
  const letterNode = (key: string, codePoints: () => CodePoints): GrammarNode => {
    const node = letters.get(key) ?? utf8(intersection(PLAIN, codePoints()));
    letters.set(key, node);
    return node;
  };
  const nodes = new Map<NameTree, GrammarNode>();
  // Longer beginnings come later in the list, so that what follows a letter is there before the letter.
  for (const tree of trees.reverse()) {
    const firsts = [...tree.next.keys()];
    const codes = firsts.map((letter) => letter.codePointAt(0)!);
    const other = letterNode(`^${firsts.join("")}`, () => complement(codes.map((code) => [code, code])));
    const followed = firsts.map((letter, index) => {
      const code = codes[index]!;
      return sequence(
        letterNode(letter, () => [[code, code]]),
        nodes.get(tree.next.get(letter)!)!,
      );
    });
    nodes.set(tree, choice(...(tree.isName ? [] : [QUOTE]), sequence(other, anyRest), ...followed));
  }
  return sequence(QUOTE, nodes.get(root)!);
}

/** All code points that are not among these. */
export function complement(codePoints: CodePoints): CodePoints {
  const ranges: [number, number][] = [];
  let from = 0;
  for (const [start, end] of [...codePoints].sort(([a], [b]) => a - b)) {
    if (start > from) ranges.push([from, start - 1]);
    from = Math.max(from, end + 1);
  }
  if (from <= LAST_CODE_POINT) ranges.push([from, LAST_CODE_POINT]);
  return ranges;
}

/** Code points that are in both. */
export function intersection(a: CodePoints, b: CodePoints): CodePoints {
  return complement([...complement(a), ...complement(b)]);
}

/** One character of these, in UTF-8. */
export function utf8(codePoints: CodePoints): GrammarNode {
  const ascii: [number, number][] = [];
  const longer: GrammarNode[] = [];
  for (const range of codePoints) {
    for (const bytes of byteSequences(...range)) {
      if (bytes.length === 1) ascii.push(bytes[0]!);
      else longer.push(sequence(...bytes.map((byte) => byteRanges(byte))));
    }
  }
  return choice(...(ascii.length > 0 ? [byteRanges(...ascii)] : []), ...longer);
}

/** A range of code points as sequences of ranges of bytes. */
function byteSequences(from: number, to: number): [number, number][][] {
  const splitAt = (last: number) => [...byteSequences(from, last), ...byteSequences(last + 1, to)];
  for (const last of LAST_OF_LENGTH) if (from <= last && to > last) return splitAt(last);
  if (to <= 0x7f) return [[[from, to]]];
  for (let bits = 6; bits <= 18; bits += 6) {
    const low = (1 << bits) - 1;
    if ((from & ~low) === (to & ~low)) continue;
    if ((from & low) !== 0) return splitAt(from | low);
    if ((to & low) !== low) return splitAt((to & ~low) - 1);
  }
  const first = utf8Bytes(from);
  const last = utf8Bytes(to);
  return [first.map((byte, index) => [byte, last[index]!])];
}

function utf8Bytes(code: number): number[] {
  const length = code <= 0x7ff ? 2 : code <= 0xffff ? 3 : 4;
  const bytes: number[] = [];
  for (let left = length - 1; left > 0; left--)
    bytes.unshift(0x80 | ((code >> (6 * (length - 1 - left))) & 0x3f));
  const lead = length === 2 ? 0xc0 : length === 3 ? 0xe0 : 0xf0;
  return [lead | (code >> (6 * (length - 1))), ...bytes];
}
