/** White space as Python defines it: JavaScript's `\s` lacks some of these characters and has one more. */
const SPACES =
  "\t\n\v\f\r\u001c\u001d\u001e\u001f \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";

/** Python's `\s`, for a regular expression. */
export const SPACE = `[${SPACES}]`;

/** Python's `str.strip`: without white space, or without the given signs, at both ends. */
export function strip(text: string, signs?: string): string {
  return stripEnd(stripStart(text, signs), signs);
}

/** Python's `str.lstrip`. */
export function stripStart(text: string, signs?: string): string {
  const isStripped = signOf(signs);
  let start = 0;
  while (start < text.length && isStripped(text[start]!)) start++;
  return text.slice(start);
}

/** Python's `str.rstrip`. */
export function stripEnd(text: string, signs?: string): string {
  const isStripped = signOf(signs);
  let end = text.length;
  while (end > 0 && isStripped(text[end - 1]!)) end--;
  return text.slice(0, end);
}

function signOf(signs: string | undefined): (sign: string) => boolean {
  return signs === undefined ? (sign) => SPACES.includes(sign) : (sign) => signs.includes(sign);
}
