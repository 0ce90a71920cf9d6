import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { Hono } from "hono";
import { TinkerError } from "../../errors.js";
import { errorCode } from "../../files.node.js";

const TYPES = {
  "index.html": "text/html; charset=utf-8",
  "page.js": "text/javascript; charset=utf-8",
  "page.css": "text/css; charset=utf-8",
} as const;

/** The page's files. They hold no one's data, so they need no token. */
export function addPageFiles(app: Hono): void {
  const files = new Map<string, Promise<Buffer<ArrayBuffer>>>();
  const read = (name: string) => {
    const known = files.get(name);
    if (known !== undefined) return known;
    const reading = readPageFile(name);
    files.set(name, reading);
    reading.catch(() => files.delete(name));
    return reading;
  };
  for (const [name, type] of Object.entries(TYPES)) {
    app.get(name === "index.html" ? "/" : `/${name}`, async (context) =>
      context.body(await read(name), 200, { "content-type": type }),
    );
  }
}

/** As the build left it: from `src` and from the bundle alike, the package is some folders up. */
async function readPageFile(name: string): Promise<Buffer<ArrayBuffer>> {
  const manifest = import.meta.resolve("tinkerts/package.json");
  try {
    return await readFile(fileURLToPath(new URL(`dist/page/${name}`, manifest)));
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
    throw new TinkerError(`The dashboard's page is not built: ${name} is missing. Run \`npm run build\`.`);
  }
}
