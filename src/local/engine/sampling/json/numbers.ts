import {
  anyCharacterOf,
  byteRanges,
  choice,
  type GrammarNode,
  literal,
  optionalRule,
  repeat,
  sequence,
} from "./grammar.js";

/** Range of numbers; absent ends are open. */
export interface NumberBounds {
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
  readonly exclusiveMaximum?: number;
}

/** Doubles keep the order of all decimals of this length, so comparisons here hold for the numbers as they are read. */
const MAX_DIGITS = 15;
const DIGIT = byteRanges([0x30, 0x39]);
const INTEGER_DIGITS = choice(
  literal("0"),
  sequence(anyCharacterOf("123456789"), repeat(DIGIT, 0, MAX_DIGITS - 1)),
);

/** Any JSON number that is finite when read. */
export const anyNumber: GrammarNode = sequence(
  optionalRule(literal("-")),
  INTEGER_DIGITS,
  optionalRule(sequence(literal("."), repeat(DIGIT, 1, MAX_DIGITS))),
  optionalRule(sequence(anyCharacterOf("eE"), optionalRule(anyCharacterOf("+-")), repeat(DIGIT, 1, 2))),
);

/** Any whole number of at most 15 digits. */
export const anyInteger: GrammarNode = sequence(optionalRule(literal("-")), INTEGER_DIGITS);

/** One end of a range of magnitudes: digits before and behind the point. */
interface End {
  readonly whole: string;
  readonly fraction: string;
  readonly isExcluded: boolean;
}

const ZERO: End = { whole: "0", fraction: "", isExcluded: false };
const LARGEST: End = { whole: "9".repeat(MAX_DIGITS), fraction: "", isExcluded: false };

/** Numbers within bounds, written without an exponent and with at most 15 digits. */
export function boundedNumber(bounds: NumberBounds, isInteger: boolean): GrammarNode {
  const low = tighter(bounds.minimum, bounds.exclusiveMinimum, (a, b) => a > b);
  const high = tighter(bounds.maximum, bounds.exclusiveMaximum, (a, b) => a < b);
  const options: GrammarNode[] = [];
  if (high === undefined || high.value >= 0) {
    const from = low === undefined || low.value < 0 ? ZERO : end(low);
    options.push(magnitudes(from, high === undefined ? LARGEST : end(high), isInteger));
  }
  if (low === undefined || low.value < 0) {
    // Minus zero is zero: it belongs to the other half.
    const from = high === undefined || high.value >= 0 ? { ...ZERO, isExcluded: true } : end(high);
    const to = low === undefined ? LARGEST : end(low);
    options.push(sequence(literal("-"), magnitudes(from, to, isInteger)));
  }
  return choice(...options);
}

interface Limit {
  readonly value: number;
  readonly isExcluded: boolean;
}

function tighter(
  included: number | undefined,
  excluded: number | undefined,
  isTighter: (a: number, b: number) => boolean,
): Limit | undefined {
  if (excluded !== undefined && (included === undefined || !isTighter(included, excluded)))
    return { value: excluded, isExcluded: true };
  return included === undefined ? undefined : { value: included, isExcluded: false };
}

function end({ value, isExcluded }: Limit): End {
  const [mantissa, exponent = "0"] = String(Math.abs(value)).split("e") as [string, string | undefined];
  const [before, behind = ""] = mantissa.split(".") as [string, string | undefined];
  const shift = Number(exponent);
  const digits = before + behind;
  const point = before.length + shift;
  const padded = point <= 0 ? "0".repeat(1 - point) + digits : digits.padEnd(point, "0");
  const at = Math.max(1, point);
  return { whole: padded.slice(0, at), fraction: padded.slice(at), isExcluded };
}

/** Decimals from one end to the other, by how many digits they have before the point. */
function magnitudes(low: End, high: End, isInteger: boolean): GrammarNode {
  const options: GrammarNode[] = [];
  for (let length = low.whole.length; length <= Math.min(high.whole.length, MAX_DIGITS); length++) {
    const fractionDigits = isInteger ? 0 : MAX_DIGITS - length;
    const digits = new Digits(low, high, length, fractionDigits);
    options.push(digits.from(0, length === low.whole.length, length === high.whole.length));
  }
  return choice(...options);
}

/** Decimals with `length` digits before the point; "tight": the digits so far equal those of the bound. */
class Digits {
  readonly #ends: { low: End; high: End };
  readonly #length: number;
  readonly #fractionDigits: number;
  readonly #low: string;
  readonly #high: string;
  readonly #nodes = new Map<string, GrammarNode>();

  constructor(low: End, high: End, length: number, fractionDigits: number) {
    this.#ends = { low, high };
    this.#length = length;
    this.#fractionDigits = fractionDigits;
    this.#low = low.whole + low.fraction;
    this.#high = high.whole + high.fraction;
  }

  /** The digits that may follow the first `at` digits. */
  from(at: number, isLowTight: boolean, isHighTight: boolean): GrammarNode {
    if (at > 0 && !isLowTight && !isHighTight) return this.#free(at);
    const key = `${at} ${isLowTight} ${isHighTight}`;
    let node = this.#nodes.get(key);
    if (!node) {
      node = this.#make(at, isLowTight, isHighTight);
      this.#nodes.set(key, node);
    }
    return node;
  }

  /** Any digits after the first `at`, at least one. */
  #free(at: number): GrammarNode {
    const whole = this.#length - at;
    if (whole < 0) return repeat(DIGIT, 0, whole + this.#fractionDigits);
    const fraction = this.#fractionDigits;
    const behind = fraction === 0 ? [] : [optionalRule(sequence(literal("."), repeat(DIGIT, 1, fraction)))];
    return sequence(...(whole === 0 ? [] : [repeat(DIGIT, whole, whole)]), ...behind);
  }

  #make(at: number, isLowTight: boolean, isHighTight: boolean): GrammarNode {
    const length = this.#length;
    const options: GrammarNode[] = [];
    if (at >= length && this.#mayEnd(at, isLowTight, isHighTight)) options.push(sequence());
    if (at < length + this.#fractionDigits) {
      const smallest = isLowTight ? digitAt(this.#low, at) : at === 0 && length > 1 ? 1 : 0;
      const largest = isHighTight ? digitAt(this.#high, at) : 9;
      const digits: GrammarNode[] = [];
      for (let digit = smallest; digit <= largest; digit++) {
        const staysLow = isLowTight && digit === smallest;
        const staysHigh = isHighTight && digit === largest;
        // Digits between the ends lead to the same place.
        let last = digit;
        if (!staysLow && !staysHigh) last = isHighTight ? largest - 1 : 9;
        digits.push(sequence(digitsBetween(digit, last), this.from(at + 1, staysLow, staysHigh)));
        digit = last;
      }
      options.push(at === length ? sequence(literal("."), choice(...digits)) : choice(...digits));
    }
    return choice(...options);
  }

  #mayEnd(at: number, isLowTight: boolean, isHighTight: boolean): boolean {
    const isLowZero = !/[1-9]/.test(this.#low.slice(at));
    const isHighZero = !/[1-9]/.test(this.#high.slice(at));
    if (isLowTight && (!isLowZero || this.#ends.low.isExcluded)) return false;
    return !(isHighTight && isHighZero && this.#ends.high.isExcluded);
  }
}

const DIGIT_RANGES = new Map<string, GrammarNode>();

/** One digit of a range; there are only 55 of them. */
function digitsBetween(first: number, last: number): GrammarNode {
  const key = `${first}${last}`;
  const node = DIGIT_RANGES.get(key) ?? byteRanges([0x30 + first, 0x30 + last]);
  DIGIT_RANGES.set(key, node);
  return node;
}

function digitAt(digits: string, at: number): number {
  return Number(digits[at] ?? "0");
}
