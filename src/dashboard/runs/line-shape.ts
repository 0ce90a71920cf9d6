const MINUS = 0x2d;
const PLUS = 0x2b;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const SMALL_E = 0x65;
const LARGE_E = 0x45;

/** A number after a name, as programs write it. A bounded look back: a line may hold a million spaces. */
const NUMBER_VALUE = /(?<=": ?)-?\d[^\s,}]*/;
const LAST_NAME = /"([^"]*)": ?$/;
/** Powers of ten that are doubles without rounding; so is a whole number times one of them, or divided by it, rounded once. */
const POWERS = Array.from({ length: 23 }, (_, power) => 10 ** power);

/**
 * Reads lines of numbers with the same names in the same order straight from their bytes. Nearly all lines of a run are
 * alike, and JSON.parse makes an object of each.
 */
export class LineShape {
  readonly names: readonly string[];
  /** Numbers of the line that was read last, in the order of the names. */
  readonly values: Float64Array;
  /** The bytes before each number, and those after the last one. */
  readonly #pieces: readonly Uint8Array[];
  #end = 0;

  private constructor(names: readonly string[], pieces: readonly string[]) {
    this.names = names;
    this.values = new Float64Array(names.length);
    this.#pieces = pieces.map((piece) => Buffer.from(piece));
  }

  /** The shape of a line with its newline and what JSON.parse read in it; undefined unless all its values are numbers. */
  static of(text: string, line: Readonly<Record<string, unknown>>): LineShape | undefined {
    const values = Object.values(line);
    if (!values.every((value) => typeof value === "number") || text.includes("\\")) return undefined;
    const pieces = text.split(NUMBER_VALUE);
    const names = pieces.slice(0, -1).map((piece) => LAST_NAME.exec(piece)?.[1]);
    // A name that stands twice has one value.
    const isWhole = names.length > 0 && new Set(names).size === values.length && text.endsWith("\n");
    return isWhole && names.every((name) => name !== undefined && Object.hasOwn(line, name))
      ? new LineShape(names as string[], pieces)
      : undefined;
  }

  /** Reads the line that begins here. Returns where the next one begins, or -1 for a line of another shape. */
  read(content: Buffer, start: number): number {
    const pieces = this.#pieces;
    const count = this.values.length;
    let at = start;
    for (let place = 0; ; place += 1) {
      const piece = pieces[place]!;
      for (let index = 0; index < piece.length; index += 1)
        if (content[at + index] !== piece[index]) return -1;
      at += piece.length;
      if (place === count) return at;
      const value = this.#readNumber(content, at);
      if (Number.isNaN(value)) return -1;
      this.values[place] = value;
      at = this.#end;
    }
  }

  /** The number that begins here, and `#end` behind it; NaN if it is none of JSON. */
  #readNumber(content: Buffer, start: number): number {
    const isNegative = content[start] === MINUS;
    let at = isNegative ? start + 1 : start;
    const first = at;
    let byte = content[at]!;
    let digits = 0;
    while (byte >= ZERO && byte <= NINE) {
      digits = digits * 10 + (byte - ZERO);
      at += 1;
      byte = content[at]!;
    }
    if (at === first || (content[first] === ZERO && at > first + 1)) return Number.NaN;
    let power = 0;
    if (byte === POINT) {
      at += 1;
      const firstDecimal = at;
      byte = content[at]!;
      while (byte >= ZERO && byte <= NINE) {
        digits = digits * 10 + (byte - ZERO);
        at += 1;
        byte = content[at]!;
      }
      power = firstDecimal - at;
      if (power === 0) return Number.NaN;
    }
    if (byte === SMALL_E || byte === LARGE_E) {
      at += 1;
      byte = content[at]!;
      const isSmall = byte === MINUS;
      if (isSmall || byte === PLUS) at += 1;
      const firstDigit = at;
      let exponent = 0;
      byte = content[at]!;
      while (byte >= ZERO && byte <= NINE) {
        exponent = exponent * 10 + (byte - ZERO);
        at += 1;
        byte = content[at]!;
      }
      if (at === firstDigit) return Number.NaN;
      power += isSmall ? -exponent : exponent;
    }
    this.#end = at;
    if (digits > Number.MAX_SAFE_INTEGER || power < -22 || power > 22)
      return Number(content.toString("latin1", start, at));
    const size = power < 0 ? digits / POWERS[-power]! : digits * POWERS[power]!;
    return isNegative ? -size : size;
  }
}
