import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const read = (file: string) => readFileSync(join(root, file), "utf8");

const topPages = ["README.md", "FEATURES.md", "CHANGELOG.md", "examples/README.md"];
const docPages = readdirSync(join(root, "docs"))
  .filter((file) => file.endsWith(".md"))
  .map((file) => `docs/${file}`);
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

/** The block as a module: with an `export`, and with the names it uses but does not make. */
function asModule(code: string): string {
  const missing = Object.entries(PRELUDE).filter(
    ([name]) => !new RegExp(`^(?:const|let|(?:await )?using) ${name}\\b`, "m").test(code),
  );
  const declarations = missing.map(([name, type]) => `declare const ${name}: import("tinkerts").${type};`);
  return [code, ...declarations, "export {};", ""].join("\n");
}

interface Block {
  /** Where the block stands, as "docs/x.md:12". */
  readonly place: string;
  readonly code: string;
}

function typescriptBlocks(page: string): Block[] {
  const blocks: Block[] = [];
  let open: { line: number; code: string[] } | undefined;
  for (const [index, line] of read(page).split("\n").entries()) {
    if (open === undefined) {
      if (line.trim() === "```ts") open = { line: index + 1, code: [] };
    } else if (line.trim() === "```") {
      blocks.push({ place: `${page}:${open.line}`, code: open.code.join("\n") });
      open = undefined;
    } else {
      open.code.push(line);
    }
  }
  return blocks;
}

/** Type-checks every block as a module of a user's own project; errors come back with the place in the page. */
function typeErrors(blocks: readonly Block[]): string[] {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "tinkerts-docs-")));
  try {
    const files = new Map(blocks.map((block, index) => [`block-${index}.ts`, block]));
    for (const [file, { code }] of files) writeFileSync(join(folder, file), asModule(code));
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

function interfaceFields(file: string, name: string): string[] {
  const body =
    new RegExp(`export interface ${name}\\b[^{]*\\{([\\s\\S]*?)\\n\\}`).exec(read(file))?.[1] ?? "";
  return [...body.matchAll(/^ {2}(?:readonly )?(\w+)\?:/gm)].map((match) => match[1]!);
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
  let text = code.replaceAll(/["`]\s*\+\s*["`]/g, "").replaceAll("\\`", "`");
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
  it("holds TypeScript that compiles", { timeout: 120_000 }, () => {
    const blocks = pages.flatMap(typescriptBlocks);
    expect(blocks.length).toBeGreaterThan(20);
    const errors = typeErrors([...blocks, ...MISTAKES]);
    expect(errors.filter((error) => !error.startsWith("mistake"))).toEqual([]);
    expect(errors.map((error) => error.split(" ")[0])).toEqual(MISTAKES.map(({ place }) => place));
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

  it("walks through files that exist, a datum through 50 at most and none twice", () => {
    const modules = sourceFiles.map((file) => file.replace(/\.ts$/, ""));
    const text = read("ARCHITECTURE.md");
    const walks = text
      .slice(text.indexOf("## Six walks"), text.indexOf("## One loop for three modes"))
      .split(/\n\n(?=\*\*)/);
    const filesOf = (walk: string) =>
      [...walk.matchAll(/`([a-z-]+(?:[/.][a-z-]+)+)`/g)].map((match) => match[1]!);
    const exists = (file: string) => modules.some((name) => name === file || name.endsWith(`/${file}`));
    expect(walks.flatMap(filesOf).filter((file) => !exists(file))).toEqual([]);
    const datum = filesOf(walks.find((walk) => walk.startsWith("**A datum**"))!);
    expect(datum.length).toBe(Number(/(\d+) files/.exec(text)?.[1]));
    expect(datum.length).toBeLessThanOrEqual(50);
    expect(new Set(datum).size).toBe(datum.length);
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
    const options = [
      ...interfaceFields("src/transport/types.ts", "HttpClientOptions"),
      ...interfaceFields("src/session/create-session.ts", "SessionOptions"),
      ...interfaceFields("src/clients/service/service-client.ts", "ServiceClientOptions"),
    ];
    expect(options.length).toBeGreaterThan(10);
    expect(tableNames("docs/configuration.md", "option").sort()).toEqual(options.sort());
  });
});
