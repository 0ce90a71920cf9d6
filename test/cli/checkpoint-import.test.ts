import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Adapter, readAdapter, writeAdapter } from "../../src/checkpoints/index.js";
import { RestClient } from "../../src/index.js";
import { fixture } from "../engine/golden.js";
import { run, start } from "./command.js";
import { cleanEnv } from "./server.js";

interface Imported {
  readonly baseModel: string;
  readonly statePath: string;
  readonly samplerPath: string;
  readonly rank: number;
}

describe("tinkerts checkpoint import", () => {
  let folder: string;
  const adapter = fixture("qwen3/adapter");
  const base = fixture("qwen3");
  const cli = (args: readonly string[]) =>
    run(["checkpoint", "import", ...args], { cwd: folder, env: cleanEnv(folder) });
  const imported = async (args: readonly string[]): Promise<Imported> => {
    const { code, stdout, stderr } = await cli([...args, "--base", base, "--json"]);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    return JSON.parse(stdout) as Imported;
  };
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "tinkerts-cli-import-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("makes the same checkpoint with and without a server in the folder, which then offers it", async () => {
    const alone = await imported([adapter]);
    expect(alone).toMatchObject({ baseModel: "qwen3", rank: 3 });
    expect(alone.samplerPath).toMatch(/^tinker:\/\/[-\w]{36}:train:0\/sampler_weights\/imported$/);
    const server = start(
      ["serve", "--port", "0", "--threads", "1", "--no-nano", "--model", `qwen3=${base}`],
      {
        cwd: folder,
        env: cleanEnv(folder),
      },
    );
    const [, baseURL] = await server.seen(/TINKER_BASE_URL=(\S+)/);
    const rest = new RestClient({ baseURL: baseURL!, apiKey: "tml-local" });
    try {
      const { stdout, code } = await cli([adapter, "--name", "second", "--json"]);
      // The adapter names the folder in which its base model once was.
      expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
      const there = await served([adapter, "--name", "second"]);
      expect(there.statePath).toBe(alone.statePath.replace(/imported$/, "second"));
      for (const path of [alone.statePath, there.samplerPath]) {
        expect(await rest.getWeightsInfo(path)).toMatchObject({ baseModel: "qwen3", loraRank: 3 });
      }
      expect(readdirSync(join(folder, ".tinkerts/import"))).toEqual([]);
    } finally {
      await rest.close();
      server.child.kill("SIGINT");
      await server.finished;
    }
  });

  const served = async (args: readonly string[]): Promise<Imported> => {
    const { code, stdout, stderr } = await cli([...args, "--base", "qwen3", "--json"]);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    return JSON.parse(stdout) as Imported;
  };

  it("refuses what it cannot take in, in one sentence", async () => {
    const changed = async (change: Partial<Adapter>) => {
      const path = mkdtempSync(join(folder, "adapter-"));
      await writeAdapter(path, { ...(await readAdapter(adapter)), ...change });
      return path;
    };
    const dora = await cli([await changed({ otherSettings: { use_dora: true } }), "--base", base]);
    expect(dora.code).toBe(1);
    expect(dora.stderr).toMatch(/adapters with use_dora \(true\) are not supported/);
    const nameless = await cli([await changed({ baseModel: null })]);
    expect(nameless.code).toBe(2);
    expect(nameless.stderr).toMatch(/does not say what its base model is: give --base/);
  });
});
