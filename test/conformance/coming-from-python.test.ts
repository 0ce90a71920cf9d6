import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { explainSkip, hasPython, hasPythonModule, lastLine, python, pythonFile } from "./judge.js";

explainSkip("coming-from-python.test.ts");
const hasCookbook = hasPythonModule("tinker_cookbook", "the cookbook's part of coming-from-python.test.ts");

const root = fileURLToPath(new URL("../..", import.meta.url));
const run = promisify(execFile);

interface Row {
  /** `tinker.ServiceClient`, `tinker`, `tinker (command)` or `tinker_cookbook.rl`: whose name it is in Python. */
  readonly owner: string;
  readonly name: string;
  /** `ServiceClient`, `tinkerts`, `tinkerts (command)` or `tinkerts/cookbook`: where ours is unless it says otherwise. */
  readonly ourOwner: string;
  readonly ours: readonly string[];
}

/** The tables of the page whose first heading is a Python owner. */
function readTables(page: string): Row[] {
  const rows: Row[] = [];
  let head: { owner: string; ourOwner: string } | undefined;
  for (const line of page.split("\n")) {
    const [first, second] = line.split("|").slice(1, 3);
    if (first === undefined || second === undefined) {
      head = undefined;
    } else if (head === undefined) {
      const owner = first.replaceAll("`", "").trim();
      if (/^tinker(_cookbook)?\b/.test(owner)) head = { owner, ourOwner: second.replaceAll("`", "").trim() };
    } else if (!first.startsWith("--")) {
      rows.push({ ...head, name: codeSpans(first)[0] ?? first.trim(), ours: codeSpans(second) });
    }
  }
  return rows;
}

const codeSpans = (cell: string): string[] => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]!);

const isCommand = ({ owner }: Row) => owner === "tinker (command)";
const isCookbook = (owner: string) => owner.startsWith("tinker_cookbook");

describe.skipIf(!hasPython)("docs/coming-from-python.md", () => {
  let rows: Row[];
  let names: Record<string, string[]>;
  beforeAll(async () => {
    const page = await readFile(join(root, "docs/coming-from-python.md"), "utf8");
    rows = readTables(page).filter(({ owner }) => hasCookbook || !isCookbook(owner));
    names = lastLine((await run(python, [pythonFile("names.py")])).stdout);
  });

  it("lists every public name of the newest official package", () => {
    const listed = new Set(rows.map(({ owner, name }) => `${owner} ${name}`));
    const missing = Object.entries(names)
      // Most of these are messages of the wire, which the clients write and read.
      .filter(([owner]) => owner !== "tinker.types")
      // Of the cookbook the page lists what people write, not what it is made of.
      .filter(([owner]) => !isCookbook(owner) || owner === "tinker_cookbook.rl.train.Config")
      .flatMap(([owner, all]) => all.map((name) => `${owner} ${name}`))
      .filter((name) => !listed.has(name));
    expect(missing).toEqual([]);
  });

  it("lists no name that the package does not have", () => {
    const unknown = rows.filter(({ owner, name }) => !names[owner]?.includes(name));
    expect(unknown.map(({ owner, name }) => `${owner} ${name}`)).toEqual([]);
  });

  it("lists no name of ours that the built package does not have", async () => {
    const members = rows.filter((row) => !isCommand(row)).flatMap(ourNames);
    expect(members.length).toBeGreaterThan(100);
    expect(await typeErrors([...new Set(members.map(use))])).toEqual([]);
    expect(await typeErrors([use({ owner: "ServiceClient", name: "noSuchCall" })])).not.toEqual([]);
    expect(await typeErrors([use({ owner: "tinkerts", name: "NoSuchType" })])).not.toEqual([]);
    expect(await typeErrors([use({ owner: "TrainDpoOptions", name: "noSuchOption" })])).not.toEqual([]);
  });

  it("lists no command of ours that does not exist", async () => {
    for (const { ours } of rows.filter(isCommand)) {
      const { stdout } = await run(process.execPath, [
        join(root, "dist/cli/main.js"),
        ...ours[0]!.split(" "),
        "--help",
      ]);
      expect(`${stdout.split("\n")[0]} `).toContain(`Usage: tinkerts ${ours[0]} `);
    }
  });
});

interface OurName {
  /** A class at the root, the type of a cookbook's options, or `tinkerts` or `tinkerts/cookbook` for the entry itself. */
  readonly owner: string;
  readonly name: string;
}

function ourNames({ ours, ourOwner }: Row): OurName[] {
  return ours.map((text) => {
    const [first = "", second] = text.replace(/\(.*$/s, "").split(".");
    return second === undefined ? { owner: ourOwner, name: first } : { owner: first, name: second };
  });
}

/** A line of TypeScript that compiles when the name exists. */
function use({ owner, name }: OurName): string {
  if (owner.startsWith("tinkerts")) return `export type { ${name} } from "${owner}";`;
  if (owner.endsWith("Options")) return `"${name}" satisfies Key<cookbook.${owner}>;`;
  return `"${name}" satisfies Member<typeof tinkerts.${owner}>;`;
}

/** What the compiler says of these lines in a project that has the built package installed. */
async function typeErrors(lines: readonly string[]): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), "tinkerts-names-"));
  try {
    await mkdir(join(folder, "node_modules"));
    await symlink(root, join(folder, "node_modules/tinkerts"));
    await writeFile(join(folder, "package.json"), JSON.stringify({ type: "module" }));
    const head = [
      `import type * as tinkerts from "tinkerts";`,
      `import type * as cookbook from "tinkerts/cookbook";`,
      `type Member<C extends { prototype: unknown }> = keyof C["prototype"] | keyof C;`,
      `type Key<O> = O extends unknown ? keyof O : never;`,
    ];
    await writeFile(join(folder, "names.ts"), [...head, ...lines, ""].join("\n"));
    const compiler = join(root, "node_modules/typescript/bin/tsc");
    const flags = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "esnext"];
    const { stdout } = await run(process.execPath, [compiler, ...flags, "names.ts"], { cwd: folder }).catch(
      (error: { stdout: string }) => error,
    );
    return stdout.split("\n").filter((line) => line !== "");
  } finally {
    await rm(folder, { recursive: true });
  }
}
