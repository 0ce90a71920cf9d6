const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const NO_WIDTH = /^[\p{Mn}\p{Me}\p{Cf}]$/u;
/** Characters that control a terminal: control characters and marks of text direction. */
const COMMANDS = /[\p{Cc}\p{Bidi_Control}]/gu;

/** Text from a server or from other people on one line, without characters that move the cursor or reorder text. */
export function printable(text: string): string {
  return text.replace(COMMANDS, (character) => (/\s/.test(character) ? " " : "\ufffd"));
}

/** Text of several lines, without other characters that control a terminal. */
export function printableLines(text: string): string {
  return text.replace(COMMANDS, (character) => (/[\n\t]/.test(character) ? character : "\ufffd"));
}

/** JSON in which characters that control a terminal are escaped: a program reads the same value from it. */
export function printableJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent).replace(COMMANDS, (character) =>
    character === "\n" ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Width of a text in columns. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const character of text) width += widthOf(character);
  return width;
}

function widthOf(character: string): number {
  if (NO_WIDTH.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}

/** Cuts a text to a number of columns, with an ellipsis for the part left out. */
export function cutText(text: string, width: number, at: "middle" | "end" = "end"): string {
  if (displayWidth(text) <= width) return text;
  const characters = [...text];
  const room = width - 1;
  const fromEnd = at === "middle" ? Math.floor(room / 2) : 0;
  const end = takeWidth(characters.toReversed(), fromEnd).reverse();
  return `${takeWidth(characters, room - fromEnd).join("")}…${end.join("")}`;
}

function takeWidth(characters: readonly string[], width: number): string[] {
  const taken: string[] = [];
  let used = 0;
  for (const character of characters) {
    used += widthOf(character);
    if (used > width) break;
    taken.push(character);
  }
  return taken;
}

/**
 * Breaks lines between words, and indents continued lines like the first. Only a longer single word exceeds the width.
 */
export function wrapText(text: string, width: number): string {
  return text
    .split("\n")
    .map((line) => {
      if (displayWidth(line) <= width) return line;
      const indent = /^ */.exec(line)![0];
      return wrapWords(line.trim().split(/ +/), width - indent.length)
        .map((words) => `${indent}${words.join(" ")}`.trimEnd())
        .join("\n");
    })
    .join("\n");
}

/** Breaks a command between words so that it can still be copied: all lines but the last end with \\. */
export function wrapCommand(command: string, width: number): string {
  if (displayWidth(command) <= width) return command;
  // Space for the backslash, and for the indent of all lines but the first.
  const room = width - 4;
  // An option stays with its value where both fit, and a quoted text stays whole.
  const words = (command.match(/(?:--?[\w-]+ (?!-))?(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? []).flatMap((word) =>
    displayWidth(word) <= room ? word : word.split(/(?<=^--?[\w-]+) /),
  );
  const lines = wrapWords(words, room);
  return lines.map((line, index) => `${index > 0 ? "  " : ""}${line.join(" ")}`).join(" \\\n");
}

function wrapWords(words: readonly string[], width: number): string[][] {
  const lines: string[][] = [];
  let used = 0;
  for (const word of words) {
    const wordWidth = displayWidth(word);
    const line = lines.at(-1);
    if (line !== undefined && used + 1 + wordWidth <= width) {
      line.push(word);
      used += 1 + wordWidth;
    } else {
      lines.push([word]);
      used = wordWidth;
    }
  }
  return lines;
}

/** Pads a text with spaces up to a width. */
export function padText(text: string, width: number, align: "left" | "right"): string {
  const padding = " ".repeat(Math.max(0, width - displayWidth(text)));
  return align === "left" ? text + padding : padding + text;
}
