import { byteRanges, choice, type GrammarNode, literal, oneOf, repeat, sequence } from "./grammar.js";

/** Code points from the first to the second, both included. */
export type CodePoints = readonly (readonly [from: number, to: number])[];

const LAST_CODE_POINT = 0x10ffff;
/** The last code points of one, two and three bytes. */
const LAST_OF_LENGTH = [0x7f, 0x7ff, 0xffff];
const SURROGATES: CodePoints = [[0xd800, 0xdfff]];
/** What stands in a JSON string only behind a backslash. */
const ESCAPED: CodePoints = [
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
];

const HEX = oneOf("0123456789abcdefABCDEF");

/** Any character inside a JSON string, written in any way. */
export const anyCharacter: GrammarNode = choice(
  utf8(complement([...ESCAPED, ...SURROGATES])),
  sequence(
    literal("\\"),
    choice(
      oneOf('"\\/bfnrt'),
      sequence(
        literal("u"),
        choice(
          sequence(oneOf("0123456789abcABCefEF"), HEX),
          // Not the surrogates: half of a pair is no character.
          sequence(oneOf("dD"), oneOf("01234567")),
        ),
        HEX,
        HEX,
      ),
    ),
  ),
);

/** Any JSON string of so many characters. */
export function anyString(minLength = 0, maxLength = Number.POSITIVE_INFINITY): GrammarNode {
  return sequence(literal('"'), repeat(anyCharacter, minLength, maxLength), literal('"'));
}

/** A character of a class inside a JSON string, each written in its shortest way. */
export function characterOf(codePoints: CodePoints): GrammarNode {
  const escapes: GrammarNode[] = [];
  for (const [from, to] of intersection(codePoints, ESCAPED)) {
    for (let code = from; code <= to; code++)
      escapes.push(literal(JSON.stringify(String.fromCodePoint(code)).slice(1, -1)));
  }
  return choice(utf8(intersection(codePoints, complement([...ESCAPED, ...SURROGATES]))), ...escapes);
}

/**
 * Names of members that are none of these, each character written as itself: an escape could hide one of the names.
 */
export function nameExcept(names: readonly string[]): GrammarNode {
  return sequence(literal('"'), restExcept(names.map((name) => [...name])));
}

function restExcept(names: readonly (readonly string[])[]): GrammarNode {
  const plain = complement([...ESCAPED, ...SURROGATES]);
  const quote = literal('"');
  if (names.length === 0) return sequence(repeat(utf8(plain), 0), quote);
  const byFirst = new Map<string, (readonly string[])[]>();
  for (const [first, ...rest] of names)
    if (first !== undefined) byFirst.set(first, [...(byFirst.get(first) ?? []), rest]);
  const firsts: CodePoints = [...byFirst.keys()].map((first) => {
    const code = first.codePointAt(0)!;
    return [code, code];
  });
  const others = sequence(utf8(intersection(plain, complement(firsts))), restExcept([]));
  const followed = [...byFirst].map(([first, rests]) => {
    const code = first.codePointAt(0)!;
    return sequence(utf8(intersection(plain, [[code, code]])), restExcept(rests));
  });
  const isName = names.some((name) => name.length === 0);
  return choice(...(isName ? [] : [quote]), others, ...followed);
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
function utf8(codePoints: CodePoints): GrammarNode {
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
