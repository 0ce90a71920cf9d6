import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { requireBuild } from "../support/newcomer.js";

const MAX_ROOT_VALUES = 45;
const MAX_COOKBOOK_NAMES = 122;

interface PublicName {
  readonly name: string;
  readonly kind: "class" | "function" | "constant" | "interface" | "type";
  readonly documentation: string;
  readonly file: string;
  /** The declaration, with the comments of its members. */
  readonly text: string;
}
interface Subpath {
  readonly subpath: string;
  readonly contract: string;
  readonly names: readonly PublicName[];
}

/** Beginnings that make sense only below the line above: a hover shows the comment by itself. */
const LEANS_ON_ITS_PLACE = /^(?:The same|What|How it|Of|Whether it)\b/;

/** Documentation without the asterisks and line breaks of its comment. */
const sentences = (documentation: string) => documentation.replace(/\s*\n\s*(?:\*\s*)?/g, " ").trim();

const standsAlone = (documentation: string) =>
  !LEANS_ON_ITS_PLACE.test(documentation) && documentation.split(" ").length >= 4;

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

  it("has documentation that stands alone, for names and their members", () => {
    const comments = subpaths.flatMap(({ subpath, names }) =>
      names.flatMap(({ name, documentation, text }) =>
        [documentation, ...Array.from(text.matchAll(/\/\*\*(.*?)\*\//gs), ([, comment]) => comment!)].map(
          (comment) => ({ at: `${subpath}: ${name}`, comment: sentences(comment) }),
        ),
      ),
    );
    expect(comments.length).toBeGreaterThan(1000);
    expect(comments.filter(({ comment }) => !standsAlone(comment))).toEqual([]);
  });

  it("has a sentence for every subpath", () => {
    expect(subpaths.filter(({ contract }) => contract === "").map(({ subpath }) => subpath)).toEqual([]);
  });

  it("is small at the root", () => {
    const root = subpaths.find(({ subpath }) => subpath === "tinkerts")!;
    const values = root.names.filter(({ kind }) => kind !== "interface" && kind !== "type");
    expect(values.length).toBeLessThanOrEqual(MAX_ROOT_VALUES);
  });

  it("lists in the cookbook what its tasks need, and no helpers", () => {
    const { names } = subpaths.find(({ subpath }) => subpath === "tinkerts/cookbook")!;
    expect(names.length).toBeLessThanOrEqual(MAX_COOKBOOK_NAMES);
  });

  it("has each name in one place, with one meaning", () => {
    const places = new Map<string, string[]>();
    for (const { subpath, names } of subpaths) {
      for (const { name } of names) places.set(name, [...(places.get(name) ?? []), subpath]);
    }
    expect([...places].filter(([, found]) => found.length > 1)).toEqual([]);
  });

  it("is what docs/api says; if not: npm run generate:api-docs", async () => {
    await promisify(execFile)(process.execPath, [fileURLToPath(script("api-docs")), "--check"]);
  });
});
