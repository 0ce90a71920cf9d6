import { TinkerError } from "../errors.js";

const MAX_SEGMENTS = 32;
const MAX_CHARACTERS = 1024;

/** An archive was not unpacked: `damaged` in transfer, or `refused` because of what it contains. */
export class ArchiveError extends TinkerError {
  override readonly name = "ArchiveError";
  readonly reason: "damaged" | "refused";

  constructor(reason: "damaged" | "refused", message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.reason = reason;
  }
}

/**
 * Splits a path from outside into segments below its folder; empty for the folder itself. Refuses anything that could
 * lead out of that folder, on any operating system.
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
  if (name.length > MAX_CHARACTERS) throw refuse(`is longer than ${MAX_CHARACTERS} characters`);
  const segments = name.split("/").filter((segment) => segment !== "" && segment !== ".");
  if (segments.includes("..")) throw refuse('leads out of its folder with ".."');
  if (segments.length > MAX_SEGMENTS) throw refuse(`is deeper than ${MAX_SEGMENTS} folders`);
  return segments;
}

function shorten(text: string): string {
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
