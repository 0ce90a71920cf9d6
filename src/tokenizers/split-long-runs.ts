const MAX_PART = 400_000;
const MAX_RUN = 25_000;

/** White space as Python defines it. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: four control characters are among it.
const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

/**
 * Kimi's tokenizer never sees more than 400,000 characters at once, nor 25,000 with or without white space in a
 * row. Where it cuts, tokens end, so the same cuts are made here, counted in code points as Python does.
 */
export function splitLongRuns(text: string, maxPart = MAX_PART, maxRun = MAX_RUN): string[] {
  if (text.length <= maxRun) return [text];
  const parts: string[] = [];
  let start = 0;
  let partLength = 0;
  let runLength = 0;
  let runIsSpace = false;
  let index = 0;
  for (const character of text) {
    const isSpace = SPACE.test(character);
    if (partLength === maxPart) {
      parts.push(text.slice(start, index));
      start = index;
      partLength = 0;
      runLength = 0;
    } else if (isSpace === runIsSpace && runLength === maxRun) {
      parts.push(text.slice(start, index));
      start = index;
      runLength = 0;
    }
    runLength = isSpace === runIsSpace ? runLength + 1 : 1;
    runIsSpace = isSpace;
    partLength++;
    index += character.length;
  }
  parts.push(text.slice(start));
  return parts;
}
