const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const NO_WIDTH = /^[\p{Mn}\p{Me}\p{Cf}]$/u;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters a terminal would obey.
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/g;

/** Names come from servers and other people: none of them moves the cursor or adds a line. */
export function printable(text: string): string {
  return text.replace(CONTROL, (character) => (/\s/.test(character) ? " " : "\ufffd"));
}

/** The same for texts of a model, which have lines. */
export function printableLines(text: string): string {
  return text.replace(CONTROL, (character) => (/[\n\t]/.test(character) ? character : "\ufffd"));
}

/** How many columns a text takes. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const character of text) width += widthOf(character);
  return width;
}

function widthOf(character: string): number {
  if (NO_WIDTH.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}

/** At most so many columns of a text, with an ellipsis where something was left out. */
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

/** Breaks lines between words, and indents what follows as the line began. Only a word that is wider stands out. */
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

/** Breaks a command line between its words so that it can still be copied: \\ stands at the end of all lines but the last. */
export function wrapCommand(command: string, width: number): string {
  if (displayWidth(command) <= width) return command;
  // An option stays with its value, quotes with what is in them.
  const words = command.match(/(?:--?[\w-]+ (?!-))?(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? [];
  // Room for the backslash, and for the indent of all lines but the first.
  const lines = wrapWords(words, width - 4);
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

/** Fills a text with spaces up to a width. */
export function padText(text: string, width: number, align: "left" | "right"): string {
  const padding = " ".repeat(Math.max(0, width - displayWidth(text)));
  return align === "left" ? text + padding : padding + text;
}
