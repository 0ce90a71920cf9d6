import { anyCharacter, type CodePoints, characterOf, complement } from "./characters.js";
import { choice, type GrammarNode, literal, repeat, sequence } from "./grammar.js";

/** Why a pattern cannot be guaranteed. */
export class PatternError extends Error {}

const DIGITS: CodePoints = [[0x30, 0x39]];
const WORDS: CodePoints = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
];
const BLANKS: CodePoints = [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];
const LINE_ENDS: CodePoints = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
];
const CLASS_ESCAPES: Readonly<Record<string, CodePoints>> = {
  d: DIGITS,
  D: complement(DIGITS),
  w: WORDS,
  W: complement(WORDS),
  s: BLANKS,
  S: complement(BLANKS),
};
const CONTROL_ESCAPES: Readonly<Record<string, number>> = {
  n: 0x0a,
  r: 0x0d,
  t: 0x09,
  f: 0x0c,
  v: 0x0b,
  0: 0,
};

const MAX_REPEATS = 1000;
const MAX_PATTERN_LENGTH = 1000;

/** JSON strings in which a regular expression finds something, as a grammar. */
export function patternString(pattern: string): GrammarNode {
  if (pattern.length > MAX_PATTERN_LENGTH)
    throw new PatternError(`has more than ${MAX_PATTERN_LENGTH} characters`);
  return sequence(literal('"'), new PatternReader(pattern).read(), literal('"'));
}

/** Reads a regular expression from left to right. */
class PatternReader {
  readonly #characters: string[];
  #at = 0;

  constructor(pattern: string) {
    this.#characters = [...pattern];
  }

  read(): GrammarNode {
    const found = this.#alternatives(true);
    if (this.#peek() !== undefined) throw new PatternError(`has a ${this.#peek()} too many`);
    return found;
  }

  #peek(): string | undefined {
    return this.#characters[this.#at];
  }

  #take(expected: string): boolean {
    const text = [...expected];
    if (!text.every((character, index) => this.#characters[this.#at + index] === character)) return false;
    this.#at += text.length;
    return true;
  }

  #next(): string {
    const character = this.#characters[this.#at++];
    if (character === undefined) throw new PatternError("ends too early");
    return character;
  }

  #alternatives(isOutermost: boolean): GrammarNode {
    const options: GrammarNode[] = [];
    do options.push(this.#terms(isOutermost));
    while (this.#take("|"));
    return choice(...options);
  }

  #terms(isOutermost: boolean): GrammarNode {
    const around = repeat(anyCharacter, 0);
    const parts: GrammarNode[] = [];
    if (isOutermost && !this.#take("^")) parts.push(around);
    for (;;) {
      const character = this.#peek();
      if (character === undefined || character === "|" || character === ")") break;
      if (isOutermost && character === "$" && [undefined, "|"].includes(this.#characters[this.#at + 1])) {
        this.#at += 1;
        return sequence(...parts);
      }
      parts.push(this.#quantified(this.#term()));
    }
    if (isOutermost) parts.push(around);
    return sequence(...parts);
  }

  #term(): GrammarNode {
    const character = this.#next();
    if (character === "(") {
      if (this.#take("?:") || this.#peek() !== "?") {
        const inner = this.#alternatives(false);
        if (!this.#take(")")) throw new PatternError("has a group without an end");
        return inner;
      }
      throw new PatternError("looks around or names a group");
    }
    if (character === "[") return characterOf(this.#characterClass());
    if (character === ".") return characterOf(complement(LINE_ENDS));
    if (character === "\\") return characterOf(this.#escape());
    if ("^$".includes(character)) throw new PatternError(`has ${character} in its middle`);
    if ("*+?{}])".includes(character))
      throw new PatternError(`has ${character} where a character was expected`);
    return characterOf(single(character));
  }

  #quantified(item: GrammarNode): GrammarNode {
    let repeated = item;
    if (this.#take("*")) repeated = repeat(item, 0);
    else if (this.#take("+")) repeated = repeat(item, 1);
    else if (this.#take("?")) repeated = repeat(item, 0, 1);
    else if (this.#take("{")) {
      let text = "";
      for (let next = this.#next(); next !== "}"; next = this.#next()) text += next;
      const [, min, comma, max] = /^(\d+)(,?)(\d*)$/.exec(text) ?? [];
      if (min === undefined) throw new PatternError(`repeats {${text}} times`);
      const most = comma === "" ? Number(min) : max === "" ? Number.POSITIVE_INFINITY : Number(max);
      if (Math.max(Number(min), Number.isFinite(most) ? most : 0) > MAX_REPEATS)
        throw new PatternError(`repeats more than ${MAX_REPEATS} times`);
      repeated = repeat(item, Number(min), most);
    } else return item;
    // What is matched lazily is matched all the same.
    this.#take("?");
    return repeated;
  }

  #characterClass(): CodePoints {
    const isNegated = this.#take("^");
    const ranges: (readonly [number, number])[] = [];
    while (!this.#take("]")) {
      const from = this.#classMember();
      if (this.#peek() === "-" && this.#characters[this.#at + 1] !== "]") {
        this.#at += 1;
        const to = this.#classMember();
        const [first, last] = [from[0]?.[0], to[0]?.[0]];
        if (!isSingle(from) || !isSingle(to) || first! > last!)
          throw new PatternError("has a range without order");
        ranges.push([first!, last!]);
      } else ranges.push(...from);
    }
    return isNegated ? complement(ranges) : ranges;
  }

  #classMember(): CodePoints {
    const character = this.#next();
    return character === "\\" ? this.#escape() : single(character);
  }

  #escape(): CodePoints {
    const character = this.#next();
    if (Object.hasOwn(CLASS_ESCAPES, character)) return CLASS_ESCAPES[character]!;
    if (Object.hasOwn(CONTROL_ESCAPES, character))
      return single(String.fromCodePoint(CONTROL_ESCAPES[character]!));
    if (character === "x" || character === "u") {
      const isBraced = character === "u" && this.#take("{");
      let hex = "";
      if (isBraced) for (let next = this.#next(); next !== "}"; next = this.#next()) hex += next;
      else for (let left = character === "x" ? 2 : 4; left > 0; left--) hex += this.#next();
      const code = /^[0-9a-fA-F]{1,6}$/.test(hex) ? Number.parseInt(hex, 16) : Number.NaN;
      if (!(code <= 0x10ffff)) throw new PatternError(`has the escape \\${character}${hex}`);
      return [[code, code]];
    }
    if (/[a-zA-Z0-9]/.test(character)) throw new PatternError(`has the escape \\${character}`);
    return single(character);
  }
}

function single(character: string): CodePoints {
  const code = character.codePointAt(0)!;
  return [[code, code]];
}

function isSingle(codePoints: CodePoints): boolean {
  return codePoints.length === 1 && codePoints[0]![0] === codePoints[0]![1];
}
