import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

/** Everything a file of this folder loads, but for the way through protobuf.ts. */
function loadedBy(file: string, seen = new Set<string>()): Set<string> {
  const url = new URL(file, import.meta.url).href;
  return load(url, seen);
}

function load(url: string, seen: Set<string>): Set<string> {
  if (seen.has(url)) return seen;
  seen.add(url);
  const source = readFileSync(new URL(url), "utf8");
  for (const [, kind, specifier] of source.matchAll(/^(import|export)(?! type)[^;]*? from "([^"]+)";/gm)) {
    if (kind && specifier?.startsWith(".")) load(new URL(specifier.replace(/\.js$/, ".ts"), url).href, seen);
    else seen.add(specifier!);
  }
  return seen;
}

it("reaches the protobuf library through protobuf.ts alone", () => {
  const loaded = [...loadedBy("./index.ts")];
  expect(loaded.some((url) => url.endsWith("/forward-backward-request-writer.ts"))).toBe(true);
  expect(loaded.filter((file) => file.includes("bufbuild") || file.includes("/gen/"))).toEqual([]);
  expect([...loadedBy("./protobuf.ts")]).toContain("@bufbuild/protobuf");
});
