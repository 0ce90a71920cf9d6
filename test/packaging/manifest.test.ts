import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { packageFolder, requireBuild } from "../support/newcomer.js";

const read = (file: string) => readFileSync(join(packageFolder, file), "utf8");
const manifest = JSON.parse(read("package.json")) as {
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  exports: Record<string, unknown>;
  imports: Record<string, unknown>;
  typesVersions: { "*": Record<string, [string]> };
  bin: Record<string, string>;
};

function targets(value: unknown): string[] {
  if (typeof value === "string") return [value];
  return Object.values(value as object).flatMap(targets);
}

describe("package.json", () => {
  it("leads to files that are there", () => {
    requireBuild();
    const files = [manifest.exports, manifest.imports, manifest.typesVersions, manifest.bin].flatMap(targets);
    expect(files.filter((file) => !existsSync(join(packageFolder, file)))).toEqual([]);
  });

  it("has the types of each subpath also for `moduleResolution: node10`", () => {
    const subpaths = Object.entries(manifest.exports).filter(([name]) => !/^\.$|\.(?:json|wasm)$/.test(name));
    expect(manifest.typesVersions["*"]).toEqual(
      Object.fromEntries(
        subpaths.map(([name, target]) => [name.slice(2), [(target as { types: string }).types]]),
      ),
    );
  });

  it("gives users ranges and pins our tools", () => {
    expect(Object.values(manifest.dependencies).filter((version) => !version.startsWith("^"))).toEqual([]);
    expect(
      Object.values(manifest.devDependencies).filter((version) => !/^(?:npm:[^@]+@)?\d/.test(version)),
    ).toEqual([]);
  });
});

describe("package-lock.json", () => {
  it("names no registry", () => {
    expect(read("package-lock.json")).not.toMatch(/"resolved"|https?:\/\/[^"]*registry/);
  });
});
