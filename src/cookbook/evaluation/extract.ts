const TOLERANCE = 1e-5;
/** Characters at the end of an answer in which a letter is searched. */
const LAST_CHARACTERS = 300;

/** Extracts the content of the first `\boxed{...}` of a text, nested braces included; undefined without a closed one. */
export function extractBoxed(text: string): string | undefined {
  const open = "\\boxed{";
  const found = text.indexOf(open);
  if (found === -1) return undefined;
  const start = found + open.length;
  let depth = 1;
  for (let position = start; position < text.length; position += 1) {
    if (text[position] === "{") depth += 1;
    else if (text[position] === "}") depth -= 1;
    if (depth === 0) return text.slice(start, position);
  }
  return undefined;
}

/**
 * Extracts the final number of a worked answer: the boxed one, the one after `####`, the one after "answer is", the
 * last one in bold, or else the last one. Undefined without a number.
 */
export function extractNumber(text: string): string | undefined {
  const boxed = extractBoxed(text);
  if (boxed) return firstNumber(boxed);
  const [, marked] = /####\s*([^\n]+)/.exec(text) ?? [];
  if (marked !== undefined) return firstNumber(marked);
  const [, said] = /(?:answer is|answer:)\s*\$?([0-9,.-]+)/i.exec(text) ?? [];
  if (said !== undefined) return withoutCommas(said);
  const bold = [...text.matchAll(/\*\*\$?(-?\p{Nd}+[,\p{Nd}]*\.?\p{Nd}*)/gu)].at(-1)?.[1];
  if (bold !== undefined) return withoutCommas(bold).replace(/\.+$/, "");
  const last = text.match(/-?\p{Nd}+[,\p{Nd}]*\.?\p{Nd}*/gu)?.at(-1);
  return last === undefined ? undefined : withoutCommas(last);
}

/** The letters of a multiple-choice question with four answers. */
export const CHOICE_LETTERS = "ABCD";

/**
 * Extracts the letter of a choice: the boxed one, the one after "answer is", or else the last one that stands alone.
 */
export function extractChoice(text: string, letters = CHOICE_LETTERS): string | undefined {
  const choice = `[${letters}]`;
  const boxed = extractBoxed(text)?.trim().toUpperCase();
  if (boxed !== undefined && new RegExp(`^${choice}$`).test(boxed)) return boxed;
  const [, said] = new RegExp(`(?:answer is|answer:)\\s*\\(?(${choice})\\)?`, "i").exec(text) ?? [];
  if (said !== undefined) return said.toUpperCase();
  const end = [...text.slice(-2 * LAST_CHARACTERS)].slice(-LAST_CHARACTERS).join("");
  // Words of any script, which `\b` does not handle.
  return end.match(new RegExp(`(?<![\\p{L}\\p{N}_])${choice}(?![\\p{L}\\p{N}_])`, "gu"))?.at(-1);
}

/** Whether two texts are the same number, however they are written; other texts must be equal. */
export function isSameNumber(given: string, expected: string): boolean {
  const [first, second] = [given, withoutCommas(expected)].map((text) => text.trim()) as [string, string];
  const numbers = [first, second].map(numberOf);
  return numbers.every((value) => value !== undefined)
    ? Math.abs(numbers[0]! - numbers[1]!) < TOLERANCE
    : first === second;
}

/** The first number in a text that may contain LaTeX; without one, the plain text. */
function firstNumber(text: string): string {
  const plain = text
    .replaceAll(/\\text\{[^}]*\}/g, "")
    .replaceAll(/\\[a-zA-Z]+/g, "")
    .replaceAll(/[{}$, ]/g, "");
  return /-?\p{Nd}+\.?\p{Nd}*/u.exec(plain)?.[0] ?? plain.trim();
}

function withoutCommas(text: string): string {
  return text.trim().replaceAll(",", "");
}

function numberOf(given: string): number | undefined {
  const text = given.replaceAll(/\p{Nd}/gu, plainDigit);
  return /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i.test(text) ? Number(text) : undefined;
}

/** Converts digits of any script: they have consecutive code points from 0 to 9. */
function plainDigit(digit: string): string {
  const code = digit.codePointAt(0)!;
  let first = code;
  while (/\p{Nd}/u.test(String.fromCodePoint(first - 1))) first -= 1;
  return String((code - first) % 10);
}
