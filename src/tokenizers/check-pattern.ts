import { TinkerError } from "../errors.js";

/** Quantifiers without an end that follow each other: each makes the search longer by the length of the text. */
const MAX_UNBOUNDED = 3;
/** How often a part may be repeated, by all the counts around it together. */
const MAX_REPEATS = 10_000;
const MAX_PATTERN_LENGTH = 65_536;

/** The contents of a pair of parentheses. */
interface Group {
  /** Whether the same text may be matched in several ways: it holds a choice, or a quantifier that may vary. */
  isAmbiguous: boolean;
  /** Unbounded quantifiers of the current alternative, and of the one with most. */
  unbounded: number;
  mostUnbounded: number;
  repeats: number;
}

const newGroup = (): Group => ({ isAmbiguous: false, unbounded: 0, mostUnbounded: 0, repeats: 1 });

/**
 * Refuses a pattern of a tokenizer whose search may take exponential time: `(a+)+$` does. The patterns of published
 * tokenizers repeat sets of characters, not groups of variable length.
 */
export function checkPattern(pattern: string, place: string): void {
  const refuse = (why: string): never => {
    const shown = pattern.length > 200 ? `${pattern.slice(0, 200)}…` : pattern;
    throw new TinkerError(`The tokenizer's ${place} has the pattern ${shown}, which ${why}: it is not run.`);
  };
  if (pattern.length > MAX_PATTERN_LENGTH) refuse(`is longer than ${MAX_PATTERN_LENGTH} characters`);
  const open: Group[] = [newGroup()];
  let last: Group | undefined;
  // One step beyond the end, where the last part is counted.
  for (let index = 0; index <= pattern.length; ) {
    const group = open.at(-1)!;
    const character = pattern[index] ?? "";
    const quantifier = last && quantifierAt(pattern, index);
    if (last !== undefined && quantifier !== undefined) {
      const { min, max, length } = quantifier;
      if (max > 1 && last.isAmbiguous) refuse("repeats a group that can match one text in several ways");
      if (max === Number.POSITIVE_INFINITY) group.unbounded += 1;
      if (max !== min) group.isAmbiguous = true;
      group.unbounded += last.mostUnbounded;
      const repeats = last.repeats * (Number.isFinite(max) ? max : min);
      if (repeats > MAX_REPEATS) refuse(`repeats a part more than ${MAX_REPEATS} times`);
      group.repeats = Math.max(group.repeats, repeats);
      last = undefined;
      index += length;
      if (pattern[index] === "?") index += 1;
      continue;
    }
    if (last !== undefined) include(group, last);
    if (group.unbounded > MAX_UNBOUNDED) refuse(`has more than ${MAX_UNBOUNDED} open repeats in a row`);
    last = newGroup();
    if (character === "\\") {
      if (/[1-9k]/.test(pattern[index + 1] ?? "")) refuse("refers back to a group");
      index += escapeLength(pattern, index);
    } else if (character === "[") index = endOfSet(pattern, index);
    else if (character === "(") {
      open.push(newGroup());
      last = undefined;
      index += /^\((?:\?(?:<?[=!]|[a-zA-Z-]*:|>|<[^>]*>)?)?/.exec(pattern.slice(index, index + 100))![0]
        .length;
    } else if (character === ")" && open.length > 1) {
      open.pop();
      group.mostUnbounded = Math.max(group.mostUnbounded, group.unbounded);
      last = group;
      index += 1;
    } else {
      if (character === "|") {
        group.isAmbiguous = true;
        group.mostUnbounded = Math.max(group.mostUnbounded, group.unbounded);
        group.unbounded = 0;
        last = undefined;
      }
      index += 1;
    }
  }
}

/** Counts what a group that is not repeated adds to the one around it. */
function include(group: Group, { isAmbiguous, mostUnbounded, repeats }: Group): void {
  group.isAmbiguous ||= isAmbiguous;
  group.unbounded += mostUnbounded;
  group.repeats = Math.max(group.repeats, repeats);
}

function quantifierAt(
  pattern: string,
  index: number,
): { readonly min: number; readonly max: number; readonly length: number } | undefined {
  switch (pattern[index]) {
    case "?":
      return { min: 0, max: 1, length: 1 };
    case "*":
      return { min: 0, max: Number.POSITIVE_INFINITY, length: 1 };
    case "+":
      return { min: 1, max: Number.POSITIVE_INFINITY, length: 1 };
    case "{": {
      const [text, from, comma, to] = /^\{(\d*)(,?)(\d*)\}/.exec(pattern.slice(index, index + 40)) ?? [];
      if (text === undefined || text === "{}" || text === "{,}") return undefined;
      const min = Number(from);
      const max = comma === "" ? min : to === "" ? Number.POSITIVE_INFINITY : Number(to);
      return { min, max, length: text.length };
    }
    default:
      return undefined;
  }
}

/** `\p{Letter}` and `\x{10FFFF}` take their braces along. */
function escapeLength(pattern: string, index: number): number {
  return /^\\(?:[pPxu]\{[^}]*\}|.)/su.exec(pattern.slice(index, index + 100))?.[0].length ?? 1;
}

function endOfSet(pattern: string, start: number): number {
  for (let index = start + 1; index < pattern.length; index += 1) {
    if (pattern[index] === "\\") index += 1;
    else if (pattern[index] === "]") return index + 1;
  }
  return pattern.length;
}
