import { ArchiveError } from "./archive-error.js";

const MOST_SEGMENTS = 32;
const MOST_CHARACTERS = 1024;

/**
 * A path that came from outside, as segments below the folder it belongs to; empty for the folder itself.
 * Refuses whatever could lead out of that folder, on any operating system.
 */
export function safePath(name: string): string[] {
  const refuse = (why: string) =>
    new ArchiveError(
      "refused",
      `The checkpoint names a file ${JSON.stringify(shorten(name))}, which ${why}; nothing of it is kept.`,
    );
  if (name.startsWith("/")) throw refuse("is an absolute path");
  if (/^[A-Za-z]:/.test(name)) throw refuse("begins with a drive letter");
  if (name.includes("\\")) throw refuse("holds a backslash");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
  if (/[\x00-\x1f]/.test(name)) throw refuse("holds a control character");
  if (name.length > MOST_CHARACTERS) throw refuse(`is longer than ${MOST_CHARACTERS} characters`);
  const segments = name.split("/").filter((segment) => segment !== "" && segment !== ".");
  if (segments.includes("..")) throw refuse('leads out of its folder with ".."');
  if (segments.length > MOST_SEGMENTS) throw refuse(`is deeper than ${MOST_SEGMENTS} folders`);
  return segments;
}

function shorten(text: string): string {
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
