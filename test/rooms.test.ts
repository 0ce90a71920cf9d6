import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const source = fileURLToPath(new URL("../src", import.meta.url));

/** From top to bottom: a room may import from those below it. */
const ROOMS = [
  "cli",
  "ai-sdk",
  "cookbook",
  "local",
  "clients",
  "training",
  "tokenizers",
  "checkpoints",
  "futures",
  "session",
  "transport",
  "wire",
];
const NODE_ROOMS = new Set(["cli", "local"]);

const files = readdirSync(source, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts") && !file.includes("/wasm/"))
  .map((file) => ({ file, room: file.includes("/") ? file.split("/")[0]! : undefined }));

function importsOf(file: string): string[] {
  const text = readFileSync(join(source, file), "utf8");
  return [
    ...text.matchAll(
      /(?:^|\n)\s*(?:import|export)[^;"']*?from\s*["']([^"']+)["']|import\(\s*["']([^"']+)["']\s*\)/g,
    ),
  ].map((match) => match[1] ?? match[2]!);
}

describe("the rooms of the house", () => {
  it("are all known", () => {
    const unknown = files.filter(({ room }) => room !== undefined && !ROOMS.includes(room));
    expect(unknown).toEqual([]);
  });

  it("import only from the rooms below them", () => {
    const upward: string[] = [];
    for (const { file, room } of files) {
      if (room === undefined) continue;
      for (const specifier of importsOf(file)) {
        if (!specifier.startsWith(".")) continue;
        const target = relative(source, resolve(source, dirname(file), specifier));
        const targetRoom = target.includes("/") ? target.split("/")[0]! : undefined;
        if (targetRoom !== undefined && ROOMS.indexOf(targetRoom) < ROOMS.indexOf(room))
          upward.push(`${file} -> ${target}`);
      }
    }
    expect(upward).toEqual([]);
  });

  it("use Node only in files named for it", () => {
    const outside = files
      .filter(({ file, room }) => !file.endsWith(".node.ts") && !NODE_ROOMS.has(room ?? ""))
      .flatMap(({ file }) =>
        importsOf(file)
          .filter((specifier) => specifier.startsWith("node:") || specifier === "undici")
          .map((specifier) => `${file} -> ${specifier}`),
      );
    expect(outside).toEqual([]);
  });

  it("each begin with an index that says what they are for", () => {
    const indexes = [...new Set(files.map(({ room }) => room).filter((room) => room !== undefined))].map(
      (room) => {
        const text = readFileSync(join(source, room, "index.ts"), "utf8");
        return { room, contract: /^\/\*\*\s+\S.*\.\s*\*\//s.test(text) };
      },
    );
    expect(indexes.filter(({ contract }) => !contract)).toEqual([]);
  });
});
