// Sections of a docs page between marks, `<!-- begin: id -->` and `<!-- end: id -->`, that commands write when given --report.
import { readFileSync, writeFileSync } from "node:fs";

const file = (page) => new URL(`../${page}`, import.meta.url);

function findSection(page, id) {
  const [begin, end] = [`<!-- begin: ${id} -->`, `<!-- end: ${id} -->`];
  const text = readFileSync(file(page), "utf8");
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${page} has no section ${id}`);
  return { text, from: from + begin.length, to };
}

/** @param {string} page as in `docs/proof.md`  @param {string} id of the section  @returns {string} its text */
export function readSection(page, id) {
  const { text, from, to } = findSection(page, id);
  return text.slice(from, to).trim();
}

/** @param {string} page  @param {string} id of the section  @param {string} markdown its new text */
export function writeSection(page, id, markdown) {
  const { text, from, to } = findSection(page, id);
  writeFileSync(file(page), `${text.slice(0, from)}\n${markdown.trim()}\n${text.slice(to)}`);
}

/** @param {string} id of a section of docs/proof.md  @param {string} markdown its new text */
export const writeProofSection = (id, markdown) => writeSection("docs/proof.md", id, markdown);
