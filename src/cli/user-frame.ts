import { relative } from "node:path";
import { fileURLToPath } from "node:url";

/** Where this package's own code lies. */
const OWN_CODE = new URL("..", import.meta.url).href;
const FRAME = /^\s+at (?:.*\()?(file:\/\/.*?):(\d+):\d+\)?$/gm;
const MAX_CAUSES = 10;

/** The line of the user's own code that caused an error, `reward.ts:5`; undefined if none did. */
export function userFrame(error: unknown): string | undefined {
  let found: string | undefined;
  for (let depth = 0; error instanceof Error && depth < MAX_CAUSES; depth += 1) {
    for (const [, url, line] of (error.stack ?? "").matchAll(FRAME)) {
      if (url!.startsWith(OWN_CODE) || url!.includes("/node_modules/")) continue;
      // The innermost cause is where it began.
      found = `${relative(process.cwd(), fileURLToPath(url!.replace(/[?#].*$/, "")))}:${line}`;
      break;
    }
    error = error.cause;
  }
  return found;
}
