import { execFile } from "node:child_process";
import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newcomerFolder } from "../support/newcomer.js";

const run = promisify(execFile);

/** Node loads ES modules through require() from 20.19 on; before that, behind a flag. */
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
const REQUIRE_FLAGS = major === 20 && minor < 19 ? ["--experimental-require-module"] : [];

describe("the packed package", () => {
  const folder = newcomerFolder();
  const installed = join(folder.path, "node_modules/tinkerts");

  beforeAll(() => {
    const program = fileURLToPath(new URL("same-classes.mjs", import.meta.url));
    copyFileSync(program, join(folder.path, "same-classes.mjs"));
  });
  afterAll(() => folder.remove());

  it.each(["import", "require"])("has one class for a class over all subpaths, by %s", async (how) => {
    const args = [...REQUIRE_FLAGS, "same-classes.mjs", how, folder.path];
    const { stdout } = await run(process.execPath, args, { cwd: folder.path });
    expect(JSON.parse(stdout)).toEqual([]);
  });

  it("has the code of each source once", () => {
    const bundle = join(installed, "dist/bundle");
    const places = new Map<string, string[]>();
    for (const file of readdirSync(bundle).filter((name) => name.endsWith(".js"))) {
      for (const [, source] of readFileSync(join(bundle, file), "utf8").matchAll(
        /^\/\/#region (src\/\S+)$/gm,
      ))
        places.set(source!, [...(places.get(source!) ?? []), file]);
    }
    expect(places.size).toBeGreaterThan(200);
    expect([...places].filter(([, files]) => files.length > 1)).toEqual([]);
  });

  it("has stack traces that end in our sources, with --enable-source-maps", async () => {
    const program = 'import { ModelInput } from "tinkerts"; ModelInput.from([-1]);';
    const args = ["--enable-source-maps", "--input-type=module", "-e", program];
    const { stderr } = await run(process.execPath, args, { cwd: folder.path }).catch((error) => error);
    expect(stderr).toMatch(/src\/wire\/sampling\/model-input\.ts:\d+/);
  });
});
