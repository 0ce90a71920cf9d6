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
/** Repeats within repeats count as their product. */
const MAX_EXPANDED_LENGTH = 10_000;
const MAX_PATTERN_LENGTH = 1000;

/** How a text encodes its characters. */
export interface CharacterForm {
  readonly any: GrammarNode;
  /** One character of a class. */
  of(codePoints: CodePoints): GrammarNode;
  /** Classes that have a name: one node for all patterns. */
  readonly named: Map<string, GrammarNode>;
}

/** Characters within a JSON string. */
const JSON_CHARACTERS: CharacterForm = { any: anyCharacter, of: characterOf, named: new Map() };

/** JSON strings in which a regular expression finds something, as a grammar. */
export function patternString(pattern: string): GrammarNode {
  return sequence(literal('"'), patternText(pattern, JSON_CHARACTERS), literal('"'));
}

/** Texts in which a regular expression finds something, as a grammar. */
export function patternText(pattern: string, form: CharacterForm): GrammarNode {
  if (pattern.length > MAX_PATTERN_LENGTH)
    throw new PatternError(`has more than ${MAX_PATTERN_LENGTH} characters`);
  return new PatternReader(pattern, form).read();
}

/** Reads a regular expression from left to right. */
class PatternReader {
  readonly #characters: string[];
  readonly #form: CharacterForm;
  /** By their source: the same class is the same node. */
  readonly #classes = new Map<string, GrammarNode>();
  readonly #lengths = new Map<GrammarNode, number>();
  #at = 0;

  constructor(pattern: string, form: CharacterForm) {
    this.#characters = [...pattern];
    this.#form = form;
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
    const around = repeat(this.#form.any, 0);
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

  /** How many characters a part has when its repeats are written out; open ones end behind their minimum. */
  #expandedLength(node: GrammarNode): number {
    const known = this.#lengths.get(node);
    if (known !== undefined) return known;
    let length = 1;
    const sum = (nodes: readonly GrammarNode[]) =>
      nodes.reduce((total, part) => total + this.#expandedLength(part), 0);
    if (node.kind === "sequence") length = sum(node.parts);
    else if (node.kind === "choice") length = sum(node.options);
    else if (node.kind === "repeat")
      length = this.#expandedLength(node.item) * (Number.isFinite(node.max) ? node.max : node.min + 1);
    this.#lengths.set(node, length);
    return length;
  }

  /** A character of a class; its node is shared with all that are written the same. */
  #characterOf(start: number, codePoints: CodePoints): GrammarNode {
    const source = this.#characters.slice(start, this.#at).join("");
    const classes = source === "." || CLASS_ESCAPES[source.slice(1)] ? this.#form.named : this.#classes;
    const node = classes.get(source) ?? this.#form.of(codePoints);
    classes.set(source, node);
    this.#lengths.set(node, 1);
    return node;
  }

  #term(): GrammarNode {
    const start = this.#at;
    const character = this.#next();
    if (character === "(") {
      if (this.#take("?:") || this.#peek() !== "?") {
        const inner = this.#alternatives(false);
        if (!this.#take(")")) throw new PatternError("has a group without an end");
        return inner;
      }
      throw new PatternError("looks around or names a group");
    }
    if (character === "[") return this.#characterOf(start, this.#characterClass());
    if (character === ".") return this.#characterOf(start, complement(LINE_ENDS));
    if (character === "\\") return this.#characterOf(start, this.#escape());
    if ("^$".includes(character)) throw new PatternError(`has ${character} in its middle`);
    if ("*+?{}])".includes(character))
      throw new PatternError(`has ${character} where a character was expected`);
    return this.#characterOf(start, single(character));
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
    const length = this.#expandedLength(repeated);
    if (length > MAX_EXPANDED_LENGTH)
      throw new PatternError(
        `repeats within repeats (${length} characters written out, at most ${MAX_EXPANDED_LENGTH})`,
      );
    // A lazy repetition matches the same texts.
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
