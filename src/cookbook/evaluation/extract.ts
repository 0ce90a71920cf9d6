const TOLERANCE = 1e-5;
/** A letter is looked for where an answer ends. */
const LAST_CHARACTERS = 300;

/** What stands in the first `\boxed{...}` of a text, braces within it included; undefined without a closed one. */
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
 * The number that a worked answer ends in: what is boxed, what follows `####`, what follows "answer is", the last
 * one in bold, or else the last one of all. Undefined without a number.
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

/** The letter of a choice: the boxed one, the one after "answer is", or else the last that stands alone. */
export function extractChoice(text: string, letters = "ABCD"): string | undefined {
  const choice = `[${letters}]`;
  const boxed = extractBoxed(text)?.trim().toUpperCase();
  if (boxed !== undefined && new RegExp(`^${choice}$`).test(boxed)) return boxed;
  const [, said] = new RegExp(`(?:answer is|answer:)\\s*\\(?(${choice})\\)?`, "i").exec(text) ?? [];
  if (said !== undefined) return said.toUpperCase();
  const end = [...text.slice(-2 * LAST_CHARACTERS)].slice(-LAST_CHARACTERS).join("");
  // Words are words in any script, which `\b` does not know.
  return end.match(new RegExp(`(?<![\\p{L}\\p{N}_])${choice}(?![\\p{L}\\p{N}_])`, "gu"))?.at(-1);
}

/** Whether two texts are the same number, however it is written; others must be equal as texts. */
export function isSameNumber(given: string, expected: string): boolean {
  const [first, second] = [given, withoutCommas(expected)].map((text) => text.trim()) as [string, string];
  const numbers = [first, second].map(numberOf);
  return numbers.every((value) => value !== undefined)
    ? Math.abs(numbers[0]! - numbers[1]!) < TOLERANCE
    : first === second;
}

/** The first number in a text that may be LaTeX; without one, what is left of it. */
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

/** A digit of any script as one of ours: they stand in rows from 0 to 9. */
function plainDigit(digit: string): string {
  const code = digit.codePointAt(0)!;
  let first = code;
  while (/\p{Nd}/u.test(String.fromCodePoint(first - 1))) first -= 1;
  return String((code - first) % 10);
}
