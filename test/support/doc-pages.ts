import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The repository. */
export const root = fileURLToPath(new URL("../..", import.meta.url));

/** A file of the repository. */
export const read = (file: string) => readFileSync(join(root, file), "utf8");

/** The pages in docs/, without the generated reference. */
export const docPages = readdirSync(join(root, "docs"))
  .filter((file) => file.endsWith(".md"))
  .map((file) => `docs/${file}`);

/** A piece of TypeScript in a page. */
export interface Block {
  /** Where the block stands, as "docs/x.md:12". */
  readonly place: string;
  readonly code: string;
  /** The first one of its page is a whole program. */
  readonly isFirst?: boolean;
}

export function typescriptBlocks(page: string): Block[] {
  const blocks: Block[] = [];
  let open: { line: number; code: string[] } | undefined;
  for (const [index, line] of read(page).split("\n").entries()) {
    if (open === undefined) {
      if (line.trim() === "```ts") open = { line: index + 1, code: [] };
    } else if (line.trim() === "```") {
      const isFirst = blocks.length === 0;
      blocks.push({ place: `${page}:${open.line}`, code: open.code.join("\n"), isFirst });
      open = undefined;
    } else {
      open.code.push(line);
    }
  }
  return blocks;
}
