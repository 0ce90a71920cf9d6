import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { requireBuild } from "../support/newcomer.js";

const MAX_ROOT_VALUES = 45;

interface PublicName {
  readonly name: string;
  readonly kind: "class" | "function" | "constant" | "interface" | "type";
  readonly documentation: string;
  readonly file: string;
}
interface Subpath {
  readonly subpath: string;
  readonly contract: string;
  readonly names: readonly PublicName[];
}

const script = (name: string) => new URL(`../../scripts/${name}.mjs`, import.meta.url);

describe("the public surface", () => {
  let subpaths: readonly Subpath[];

  beforeAll(async () => {
    requireBuild();
    const { readPublicApi } = (await import(script("public-api").href)) as { readPublicApi(): Subpath[] };
    subpaths = readPublicApi();
  });

  it("has a sentence of documentation for every name", () => {
    const missing = subpaths.flatMap(({ subpath, names }) =>
      names
        .filter(({ documentation }) => documentation === "")
        .map(({ name, file }) => `${subpath}: ${name} (${file})`),
    );
    expect(missing).toEqual([]);
  });

  it("has a sentence for every subpath", () => {
    expect(subpaths.filter(({ contract }) => contract === "").map(({ subpath }) => subpath)).toEqual([]);
  });

  it("is small at the root", () => {
    const root = subpaths.find(({ subpath }) => subpath === "tinkerts")!;
    const values = root.names.filter(({ kind }) => kind !== "interface" && kind !== "type");
    expect(values.length).toBeLessThanOrEqual(MAX_ROOT_VALUES);
  });

  it("has each name in one place", () => {
    const places = new Map<string, string[]>();
    for (const { subpath, names } of subpaths) {
      for (const { name, file } of names)
        places.set(`${file} ${name}`, [...(places.get(`${file} ${name}`) ?? []), subpath]);
    }
    expect([...places].filter(([, found]) => found.length > 1)).toEqual([]);
  });

  it("is what docs/api says; if not: npm run generate:api-docs", async () => {
    await promisify(execFile)(process.execPath, [fileURLToPath(script("api-docs")), "--check"]);
  });
});
