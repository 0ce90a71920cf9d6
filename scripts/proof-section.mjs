// Writes one section of docs/proof.md, between its marks: the commands that show a claim report there when given --report.
import { readFileSync, writeFileSync } from "node:fs";

const page = new URL("../docs/proof.md", import.meta.url);

/** @param {string} id as in `<!-- begin: id -->`  @param {string} markdown the new text of the section */
export function writeProofSection(id, markdown) {
  const [begin, end] = [`<!-- begin: ${id} -->`, `<!-- end: ${id} -->`];
  const text = readFileSync(page, "utf8");
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`docs/proof.md has no section ${id}`);
  writeFileSync(page, `${text.slice(0, from + begin.length)}\n${markdown.trim()}\n${text.slice(to)}`);
}
