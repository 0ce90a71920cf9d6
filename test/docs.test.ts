import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { describe, expect, it } from "vitest";
import { CLIENT_OPTIONS } from "../src/clients/context.js";
import type { Shape } from "../src/wire/index.js";
import { type Block, docPages, read, root, typescriptBlocks } from "./support/doc-pages.js";

const topPages = ["README.md", "FEATURES.md", "CHANGELOG.md", "examples/README.md"];
const pages = [...topPages, ...docPages];

/** Names that fragments may use without making them, with their types. */
const PRELUDE: Readonly<Record<string, string>> = {
  service: "ServiceClient",
  training: "TrainingClient",
  sampler: "SamplingClient",
  rest: "RestClient",
  batch: "Datum[]",
  prompt: "ModelInput",
};

/** The block as a module: with an `export`, and, behind a page's first one, with the names it uses but does not make. */
function asModule({ code, isFirst = false }: Block): string {
  if (isFirst) return `${code}\nexport {};\n`;
  const missing = Object.entries(PRELUDE).filter(
    ([name]) => !new RegExp(`^(?:const|let|(?:await )?using) ${name}\\b`, "m").test(code),
  );
  const declarations = missing.map(([name, type]) => `declare const ${name}: import("tinkerts").${type};`);
  return [code, ...declarations, "export {};", ""].join("\n");
}

/** Type-checks every block as a module of a user's own project; errors come back with the place in the page. */
function typeErrors(blocks: readonly Block[]): string[] {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "tinkerts-docs-")));
  try {
    const files = new Map(blocks.map((block, index) => [`block-${index}.ts`, block]));
    for (const [file, block] of files) writeFileSync(join(folder, file), asModule(block));
    writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(userConfig()));
    const output = runTsc(folder);
    return output
      .split("\n")
      .map((line) => /^(?:.*\/)?(block-\d+\.ts)\((\d+),\d+\): error (.*)$/.exec(line))
      .filter((match) => match !== null)
      .map(([, file, line, message]) => `${files.get(file!)!.place} (line ${line} of the block): ${message}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function userConfig(): object {
  const { compilerOptions } = JSON.parse(read("tsconfig.json")) as {
    compilerOptions: { paths: Record<string, [string]> };
  };
  return {
    compilerOptions: {
      ...compilerOptions,
      rootDir: "/",
      typeRoots: [join(root, "node_modules/@types")],
      // A page may show a value without using it.
      noUnusedLocals: false,
      paths: {
        ...Object.fromEntries(
          Object.entries(compilerOptions.paths).map(([name, [file]]) => [name, [join(root, file)]]),
        ),
        "@ai-sdk/openai-compatible": [join(root, "node_modules/@ai-sdk/openai-compatible/dist/index.d.ts")],
        "@langchain/openai": [join(root, "node_modules/@langchain/openai/dist/index.d.ts")],
        ai: [join(root, "node_modules/ai/dist/index.d.ts")],
        "@anthropic-ai/sdk": [join(root, "node_modules/@anthropic-ai/sdk/index.d.mts")],
        openai: [join(root, "node_modules/openai/index.d.mts")],
        vitest: [join(root, "node_modules/vitest/dist/index.d.ts")],
        zod: [join(root, "node_modules/zod/index.d.ts")],
      },
    },
    include: ["*.ts"],
  };
}

function runTsc(folder: string): string {
  try {
    return execFileSync(
      process.execPath,
      [join(root, "node_modules/typescript/bin/tsc"), "-p", folder, "--pretty", "false"],
      { cwd: folder, encoding: "utf8" },
    );
  } catch (error) {
    return (error as { stdout: string }).stdout;
  }
}

const headingAnchor = (heading: string) =>
  heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replaceAll(" ", "-");

function brokenLinks(page: string): string[] {
  const text = read(page).replaceAll(/```[\s\S]*?```/g, "");
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map((match) => match[1]!)
    .filter((target) => !/^[a-z]+:/.test(target))
    .filter((target) => {
      const [path = "", anchor] = target.split("#");
      const file = path === "" ? page : relative(root, join(root, dirname(page), path));
      if (!existsSync(join(root, file))) return true;
      if (anchor === undefined) return false;
      const headings = [...read(file).matchAll(/^#+\s+(.*)$/gm)].map((match) => headingAnchor(match[1]!));
      return !headings.includes(anchor);
    })
    .map((target) => `${page} -> ${target}`);
}

/** The first cells of a table, by the heading of its first column. */
function tableNames(page: string, heading: string): string[] {
  const lines = read(page).split("\n");
  const start = lines.findIndex((line) => line.startsWith(`| ${heading} |`));
  expect(start, `${page} has a table of "${heading}"`).toBeGreaterThanOrEqual(0);
  const names: string[] = [];
  for (const line of lines.slice(start + 2)) {
    const name = /^\| `([^`]+)` \|/.exec(line)?.[1];
    if (name === undefined) break;
    names.push(name);
  }
  return names;
}

const sourceFiles = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" }).filter(
  (file) => file.endsWith(".ts") && !file.endsWith(".test.ts"),
);
const sources = sourceFiles.map((file) => read(join("src", file)));

function environmentVariables(code: string): string[] {
  const direct = [
    /\benv\(\s*"([A-Za-z_]+)"/g,
    /\bprocess\.env\[\s*"([A-Za-z_]+)"/g,
    /\bprocess\.env\.([A-Za-z_]+)/g,
  ].flatMap((pattern) => [...code.matchAll(pattern)].map((match) => match[1]!));
  // Where the name comes from a list, every text of the file that looks like one counts.
  const listed = /\bprocess\.env\[[a-z]/.test(code)
    ? [...code.matchAll(/"([A-Z]+(?:_[A-Z]+)+|[a-z]+_proxy)"/g)].map((match) => match[1]!)
    : [];
  return [...direct, ...listed].map((name) => name.toUpperCase());
}

/** The messages that a page explains: the code in its headings, up to the section of messages that are not ours. */
function explainedMessages(page: string): string[] {
  const [ours = ""] = read(page).split("\n## Messages of other tools\n");
  return [...ours.matchAll(/^### (.*)$/gm)]
    .flatMap(([, heading]) => [...heading!.matchAll(/`([^`]+)`/g)].map((match) => match[1]!))
    .map((message) => message.replace(/\b\d{3}\b/, "…"));
}

/** The sources with texts in one piece and "…" for what is filled in, as pages quote messages. */
function quotable(code: string): string {
  let text = code
    .replaceAll(/["`]\s*\+\s*["`]/g, "")
    .replaceAll("\\`", "`")
    // A sentence that begins with its field.
    .replaceAll(/wrongField\(\s*"([^"]+)",\s*["'`]/g, "wrongField($1 ");
  // Inner ones first: a filled-in part may be a text with such parts itself.
  for (let length = -1; length !== text.length; ) {
    length = text.length;
    text = text.replaceAll(/\$\{(?:[^{}]|\{[^{}]*\})*\}/g, "…");
  }
  return text;
}

/** Checked along with the pages: without an error for each of these, the check would be blind. */
const MISTAKES: readonly Block[] = [
  {
    place: "mistake:1",
    code: 'await training.forwardBackward(batch, "ppo", { config: { clipLowTreshold: 0.8 } });',
  },
  {
    place: "mistake:2",
    code: 'import { RestClient } from "tinkerts";\nnew RestClient({ apikey: "tml-x" });',
  },
];

describe("the documentation", () => {
  it("holds TypeScript that compiles", () => {
    const blocks = pages.flatMap(typescriptBlocks);
    expect(blocks.length).toBeGreaterThan(20);
    const errors = typeErrors([...blocks, ...MISTAKES]);
    expect(errors.filter((error) => !error.startsWith("mistake"))).toEqual([]);
    expect(errors.map((error) => error.split(" ")[0])).toEqual(MISTAKES.map(({ place }) => place));
  });

  it("shows where a service comes from before it uses one", () => {
    const makes = /^(?:declare const|const|await using) service\b/m;
    const missing = pages.filter((page) => {
      const blocks = typescriptBlocks(page);
      const first = blocks.findIndex(({ code }) => /(?<!\.)\bservice\b(?!:)/.test(code));
      return first !== -1 && !makes.test(blocks[first]!.code);
    });
    expect(missing).toEqual([]);
  });

  it("links to files and headings that exist", () => {
    expect(pages.flatMap(brokenLinks)).toEqual([]);
  });

  it("is reached from the README, every page for users of it", () => {
    const readme = read("README.md");
    const forUsers = docPages.filter((page) => page !== "docs/proof.md");
    expect(
      [...forUsers, "FEATURES.md", "CHANGELOG.md", "examples/README.md"].filter(
        (page) => !readme.includes(`(${page})`),
      ),
    ).toEqual([]);
  });

  it("explains messages that the code still has", () => {
    const texts = sources.map(quotable);
    const messages = explainedMessages("docs/troubleshooting.md");
    expect(messages.length).toBeGreaterThan(20);
    expect(messages.filter((message) => !texts.some((text) => text.includes(message)))).toEqual([]);
  });

  it("names files and folders of src that exist in ARCHITECTURE.md", () => {
    const folders = sourceFiles.flatMap((file) =>
      file
        .split("/")
        .slice(0, -1)
        .map((_, end, parts) => parts.slice(0, end + 1).join("/")),
    );
    const known = [
      ...new Set([...sourceFiles, ...folders, "test/modules.test.ts", "package.json", "config.json"]),
    ];
    const named = [...read("ARCHITECTURE.md").matchAll(/`([a-z-]+(?:[/.][a-z-]+)*\/?)`/g)]
      .map((match) => match[1]!.replace(/\/$/, "").replace(/^src\//, ""))
      .filter((name) => /[/.]/.test(name));
    expect(named.length).toBeGreaterThan(15);
    expect(named.filter((name) => !known.some((file) => file === name || file.endsWith(`/${name}`)))).toEqual(
      [],
    );
  });

  it("has every example in its table, and no other", () => {
    const examples = readdirSync(join(root, "examples")).filter((file) => file.endsWith(".mts"));
    const rows = [...read("examples/README.md").matchAll(/^\| \[`([\w-]+)`\]\(\1\.mts\) \|/gm)];
    expect(examples.length).toBeGreaterThan(0);
    expect(rows.map((row) => `${row[1]}.mts`).sort()).toEqual(examples.sort());
  });

  it("names every environment variable that is read, and no other", () => {
    const used = new Set(sources.flatMap(environmentVariables));
    // undici's proxy agent reads this one for us.
    expect(read("node_modules/undici/lib/dispatcher/env-http-proxy-agent.js")).toContain("NO_PROXY");
    used.add("NO_PROXY");
    expect(tableNames("docs/configuration.md", "environment variable").sort()).toEqual([...used].sort());
  });

  it("names every option of the clients, and no other", () => {
    const options = Object.entries(CLIENT_OPTIONS.fields as Shape);
    const names = options.map(([name]) => name);
    expect(tableNames("docs/configuration.md", "option").sort()).toEqual(names.sort());
    for (const [name, { fallback }] of options)
      if (fallback !== undefined)
        expect(read("docs/configuration.md")).toContain(`| \`${name}\` | \`${fallback}\` |`);
  });
});
