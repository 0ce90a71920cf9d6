import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { RECIPES } from "../../src/cli/recipes/index.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { longTest } from "../support/long.js";
import { cleanEnv } from "./server.js";
import { runWarm as run } from "./warm-command.js";

const names = Object.keys(RECIPES);
const sourceOf = (name: string) =>
  readFile(new URL(`../../src/cli/recipes/${name}.ts`, import.meta.url), "utf8");

describe("tinkerts recipe", () => {
  const folder = folderForTests("recipe");
  const env = cleanEnv(folder);
  const recipe = (...args: string[]) => run(["recipe", ...args], { cwd: folder, env });

  it("lists them with a sentence", async () => {
    const { code, stdout } = await recipe("--json");
    expect(code).toBe(0);
    const listed = JSON.parse(stdout) as { name: string; summary: string }[];
    expect(listed.map(({ name }) => name)).toEqual(names);
    expect((await recipe()).stdout).toContain(listed[0]!.summary);
  });

  it.each(names)(
    "prints %s as one file to copy, which imports the package and what it names",
    async (name) => {
      const { code, stdout } = await recipe(name, "--source");
      expect(code).toBe(0);
      expect(stdout).toBe(await sourceOf(name));
      const imported = [...stdout.matchAll(/from "([^"]+)"/g)].map(([, from]) => from!);
      const { packages = [] } = RECIPES[name]!;
      const others = imported.filter(
        (from) => !/^(?:tinkerts(?:\/|$)|node:)/.test(from) && !packages.includes(from),
      );
      expect(others).toEqual([]);
      expect(stdout).toContain(`npx tsx ${name}.ts`);
      const { bar } = await RECIPES[name]!.load();
      expect(Object.keys(bar).length).toBeGreaterThan(0);
    },
  );

  longTest("runs one, keeps it in a folder, and goes on from there", async () => {
    const args = ["word-game", "--steps", "3", "--folder", "kept", "--json"];
    const first = await recipe(...args);
    expect(first).toMatchObject({ code: 0, stderr: expect.stringContaining("step 3/3  loss ") });
    const result = JSON.parse(first.stdout) as Record<string, unknown>;
    expect(result).toMatchObject({ name: "word-game", before: 0, after: expect.any(Number), missed: [] });
    const again = await recipe(...args);
    expect(again.stderr).not.toContain("step 3/3");
    expect(JSON.parse(again.stdout)).toMatchObject({ samplerPath: result["samplerPath"] });
  });

  it("says what it does not know", async () => {
    const unknown = await recipe("cake");
    expect(unknown.code).toBe(2);
    expect(unknown.stderr).toContain(`there is no recipe cake; there are ${names.join(", ")}`);
    expect((await recipe("addition", "--steps", "0")).stderr).toContain("--steps");
    const nameless = await run(["recipe", "addition", "--base-url", "http://127.0.0.1:1"], {
      cwd: folder,
      env,
    });
    expect(nameless).toMatchObject({ code: 2, stderr: expect.stringContaining("which model?") });
  });
});
