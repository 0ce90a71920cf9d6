import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { main, run } from "./command.js";
import { cleanEnv } from "./server.js";

describe("tinkerts export", () => {
  let folder: string;
  const cli = (...args: string[]) => run(["export", ...args], { cwd: folder, env: cleanEnv(folder) });
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "tinkerts-cli-export-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("names the result after the model, and says how to use it", async () => {
    const { code, stdout } = await cli("tinkerts/nano", "--to", "gguf", "--type", "f16", "--json");
    expect(code).toBe(0);
    const { path, baseModel, commands } = JSON.parse(stdout) as Record<string, unknown>;
    expect({ path, baseModel }).toEqual({ path: join(folder, "nano.gguf"), baseModel: "nano" });
    expect(commands).toEqual([`llama-server -m ${path}`, `llama-cli -m ${path}`]);
    expect(readFileSync(String(path)).subarray(0, 4).toString()).toBe("GGUF");
  });

  it.each<[string, string[], RegExp]>([
    ["no target", ["tinkerts/nano"], /export to what\? Give --to: gguf, ollama, llama.cpp-lora, hf, vllm/],
    [
      "a check of what llama.cpp does not run",
      ["tinkerts/nano", "--to", "hf", "--check"],
      /--check runs the result in llama.cpp/,
    ],
    [
      "a check where llama.cpp is not installed",
      ["tinkerts/nano", "--to", "gguf", "--check"],
      /install it with `npm install node-llama-cpp`/,
    ],
    [
      "a model that is not there",
      ["nosuch", "--to", "gguf"],
      /"nosuch" is neither a folder .* nor a Hugging Face id/,
    ],
    [
      "an option of another target",
      ["tinkerts/nano", "--to", "gguf", "--head", "drop"],
      /head is an option of vllm/,
    ],
  ])("refuses %s", async (_, args, message) => {
    const before = readdirSync(folder);
    const { code, stderr } = await cli(...args);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(message);
    expect(readdirSync(folder)).toEqual(before);
  });

  it.skipIf(process.platform === "win32")("leaves nothing where the disk takes no more", () => {
    const before = readdirSync(folder);
    // Files may have 2 MB; Node must not end by the signal that says so.
    const script = `trap '' XFSZ; ulimit -f 4000; exec "${process.execPath}" "${main}" export "${defaultModel.path}" --to gguf --type f32 --output full.gguf`;
    const { status, stderr } = spawnSync("sh", ["-c", script], {
      cwd: folder,
      env: cleanEnv(folder),
      encoding: "utf8",
    });
    expect(stderr).toMatch(/full\.gguf could not be written: EFBIG/);
    expect(status).toBe(1);
    expect(readdirSync(folder)).toEqual(before);
  });
});
