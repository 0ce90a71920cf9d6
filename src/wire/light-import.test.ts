import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

/** Everything a file of this folder loads, but for the way through protobuf.ts. */
function loadedBy(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  const source = readFileSync(new URL(file, import.meta.url), "utf8");
  for (const [, kind, specifier] of source.matchAll(/^(import|export)(?! type)[^;]*? from "([^"]+)";/gm)) {
    if (specifier === "./protobuf.js") continue;
    if (kind && specifier?.startsWith("./")) loadedBy(specifier.replace(/\.js$/, ".ts"), seen);
    else seen.add(specifier!);
  }
  return seen;
}

it("reaches the protobuf library through protobuf.ts alone", () => {
  const loaded = [...loadedBy("./index.ts")];
  expect(loaded).toContain("./forward-backward-request-writer.ts");
  expect(loaded.filter((file) => file.includes("bufbuild") || file.includes("/gen/"))).toEqual([]);
  expect([...loadedBy("./protobuf.ts")]).toContain("@bufbuild/protobuf");
});
