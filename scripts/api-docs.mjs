// `npm run generate:api-docs`: writes docs/api/, a page for each subpath, from the built declarations. With --check it
// writes nothing and fails when a page is not what it would write.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { readPublicApi } from "./public-api.mjs";

const folder = fileURLToPath(new URL("../docs/api/", import.meta.url));
const MADE_BY =
  "<!-- Made by `npm run generate:api-docs` from the declarations. Change their comments, not this page. -->";
const GROUPS = [
  ["Classes", ["class"]],
  ["Functions", ["function"]],
  ["Constants", ["constant"]],
  ["Types", ["interface", "type"]],
];

const subpaths = readPublicApi();
const pages = new Map([
  ["README.md", overview()],
  ...subpaths.map((each) => [`${basename(each.subpath)}.md`, page(each)]),
]);
if (process.argv.includes("--check")) {
  const changed = [...pages].filter(([name, text]) => textOf(name) !== text).map(([name]) => name);
  const stale = readdirSync(folder).filter((name) => !pages.has(name));
  if (changed.length + stale.length > 0) {
    console.error(
      `docs/api is not current (${[...changed, ...stale].join(", ")}): npm run generate:api-docs`,
    );
    process.exitCode = 1;
  }
} else {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const [name, text] of pages) writeFileSync(join(folder, name), text);
}

function textOf(name) {
  try {
    return readFileSync(join(folder, name), "utf8");
  } catch {
    return undefined;
  }
}

function overview() {
  const rows = subpaths.map(
    ({ subpath, contract }) => `| [\`${subpath}\`](${basename(subpath)}.md) | ${contract} |`,
  );
  return `# API reference\n\n${MADE_BY}\n\n| import from | what it is |\n|---|---|\n${rows.join("\n")}\n`;
}

function page({ subpath, contract, names }) {
  const parts = [`# ${subpath}`, MADE_BY, contract];
  const groups = GROUPS.map(([title, kinds]) => [title, names.filter(({ kind }) => kinds.includes(kind))]);
  for (const [title, members] of groups.filter(([, each]) => each.length > 0)) {
    const links = members.map(({ name }) => `[${name}](#${name.toLowerCase()})`);
    parts.push(`**${title}:** ${links.join(" · ")}`);
  }
  for (const { name, documentation, text } of groups.flatMap(([, members]) => members)) {
    parts.push(`## ${name}`, documentation, `\`\`\`ts\n${readable(text)}\n\`\`\``);
  }
  return `${parts.filter((part) => part !== "").join("\n\n")}\n`;
}

/** A declaration for readers: without the compiler's own words and members. */
function readable(text) {
  return text
    .replaceAll(/^export (?:declare )?/gm, "")
    .replaceAll(/^ +(?:#private|private .*);\n/gm, "")
    .replaceAll(/^(?: {4})+/gm, (indent) => " ".repeat(indent.length / 2));
}
