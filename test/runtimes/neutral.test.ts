import { existsSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, it } from "vitest";
import { packageFolder, requireBuild } from "../support/newcomer.js";

const builtins = new Set(builtinModules);
const isNodeBuiltin = (specifier: string) =>
  specifier.startsWith("node:") || builtins.has(specifier.split("/")[0]!);

const STATIC_IMPORTS = [
  /(?:^|[;}\n])\s*(?:import|export)\b[^;"'()]*?\bfrom\s*["']([^"']+)["']/g,
  /(?:^|[;}\n])\s*import\s*["']([^"']+)["']/g,
];
const ALL_IMPORTS = [
  ...STATIC_IMPORTS,
  /\bimport\(\s*["']([^"']+)["']\s*\)/g,
  /\brequire\(\s*["']([^"']+)["']\s*\)/g,
];

/** Imports and re-exports with a literal specifier. */
function specifiersOf(file: string, patterns: readonly RegExp[]): string[] {
  const code = readFileSync(file, "utf8");
  return patterns.flatMap((pattern) => [...code.matchAll(pattern)].map((match) => match[1]!));
}

type Conditional = string | null | readonly Conditional[] | { readonly [condition: string]: Conditional };

/** The first target whose conditions hold, as package.json's `exports` and `imports` are read. */
function choose(target: Conditional | undefined, conditions: ReadonlySet<string>): string | undefined {
  if (typeof target === "string") return target;
  if (typeof target !== "object" || target === null) return undefined;
  const entries = Array.isArray(target) ? target.map((each) => ["default", each]) : Object.entries(target);
  for (const [condition, next] of entries as [string, Conditional][]) {
    if (condition !== "default" && !conditions.has(condition)) continue;
    const chosen = choose(next, conditions);
    if (chosen !== undefined) return chosen;
  }
  return undefined;
}

function manifestOf(folder: string): Record<string, Conditional | undefined> {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
}

function resolveSpecifier(specifier: string, from: string, conditions: ReadonlySet<string>): string {
  if (specifier.startsWith(".")) return join(dirname(from), specifier);
  const [folder, map, key] = specifier.startsWith("#")
    ? [packageFolder, "imports", specifier]
    : bareSpecifier(specifier);
  const table = manifestOf(folder)[map] as Record<string, Conditional> | undefined;
  // A package of the old kind is not walked further: reaching it is all there is to know.
  if (table === undefined) return join(folder, "package.json");
  const target = choose(table[key], conditions);
  if (target === undefined) throw new Error(`${specifier} in ${from} leads nowhere under ${[...conditions]}`);
  return join(folder, target);
}

function bareSpecifier(specifier: string): [folder: string, map: "exports", key: string] {
  const parts = specifier.split("/");
  const name = parts.splice(0, specifier.startsWith("@") ? 2 : 1).join("/");
  return [join(packageFolder, "node_modules", name), "exports", [".", ...parts].join("/")];
}

/** The file that an import of the package, or of one of its subpaths, loads. */
function shippedEntry(entry: string, conditions: readonly string[]): string {
  const exported = manifestOf(packageFolder)["exports"] as Record<string, Conditional>;
  return choose(exported[entry], new Set(conditions))!;
}

/** Every module reached from an entry, and the imports that leave for a runtime's own modules. */
function walk(
  entry: string,
  conditions: readonly string[],
  patterns: readonly RegExp[] = ALL_IMPORTS,
): { modules: string[]; builtins: string[] } {
  requireBuild();
  const given = new Set(conditions);
  const modules = new Set([join(packageFolder, entry)]);
  const outside: string[] = [];
  for (const file of modules) {
    for (const specifier of specifiersOf(file, patterns)) {
      if (isNodeBuiltin(specifier)) {
        outside.push(`${file.slice(packageFolder.length)} -> ${specifier}`);
        continue;
      }
      const next = resolveSpecifier(specifier, file, given);
      if (!existsSync(next)) throw new Error(`${specifier} in ${file} leads to ${next}, which is not there`);
      modules.add(next);
    }
  }
  return { modules: [...modules].map((file) => file.slice(packageFolder.length)), builtins: outside };
}

const isOfNode = (file: string) =>
  /\.node\.ts$|node_modules\/(?:undici|commander)\/|^src\/(?:cli|local(?!\/engine))\//.test(file);

/** The sources in the files of the bundle: the bundler writes the name of each module above its code. */
function sourcesOf(files: readonly string[]): string[] {
  return files.flatMap((file) => {
    const code = readFileSync(join(packageFolder, file), "utf8");
    return [...code.matchAll(/^\/\/#region (\S+)$/gm)].map((match) => match[1]!);
  });
}

describe("the package", () => {
  const neutral = ["browser", "worker", "bun", "deno", "none of them"];
  const entries = [
    ".",
    "./ai-sdk",
    "./autograd",
    "./engine",
    "./jax",
    "./renderers",
    "./tokenizers",
    "./training",
  ];

  it.each(neutral)(
    "reaches nothing of Node from its neutral entries, under the condition %s",
    (condition) => {
      const conditions = [condition, "import", "module"];
      for (const entry of entries) {
        const { modules, builtins: reached } = walk(shippedEntry(entry, conditions), conditions);
        expect(reached).toEqual([]);
        expect(modules.filter((file) => file.startsWith("node_modules/undici"))).toEqual([]);
        const sources = sourcesOf(modules.filter((file) => file.startsWith("dist/bundle/")));
        expect(sources.length).toBeGreaterThan(0);
        expect(sources.filter(isOfNode)).toEqual([]);
        if (entry !== ".") continue;
        expect(sources).toContain("src/transport/platform.ts");
        expect(sources).toContain("src/session/heartbeat-loop.ts");
      }
    },
  );

  it.each([...neutral, "node"])(
    "loads neither a tokenizer nor protobuf before it is asked for, under the condition %s",
    (condition) => {
      const conditions = [condition, "import", "module"];
      const { modules } = walk(shippedEntry(".", conditions), conditions, STATIC_IMPORTS);
      const sources = sourcesOf(modules);
      expect(sources.length).toBeGreaterThan(50);
      expect(sources.filter((file) => /^src\/tokenizers\/|@bufbuild/.test(file))).toEqual([]);
    },
  );

  it("has its Node parts behind the condition node", () => {
    const conditions = ["node", "import"];
    const { modules, builtins: reached } = walk(shippedEntry(".", conditions), conditions);
    expect(modules).toContain("node_modules/undici/package.json");
    expect(reached.map((each) => each.split(" -> ")[1])).toContain("node:worker_threads");
  });

  it("is imported whole, and changes no global", async () => {
    const before = new Set(Reflect.ownKeys(globalThis));
    const entry: Record<string, unknown> = await import(
      pathToFileURL(join(packageFolder, shippedEntry(".", ["node", "import"]))).href
    );
    expect(Object.keys(entry)).toEqual(
      expect.arrayContaining([
        "ServiceClient",
        "TrainingClient",
        "SamplingClient",
        "RestClient",
        "APIFuture",
      ]),
    );
    expect(Reflect.ownKeys(globalThis).filter((key) => !before.has(key))).toEqual([]);
  });
});
