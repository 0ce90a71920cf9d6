import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { run, start } from "./command.js";
import { cleanEnv } from "./server.js";

const WORDS = ["stick", "apple", "smile", "queen", "truck", "old", "three", "string"];
const rows = WORDS.flatMap((word) => Array<string>(5).fill(word)).map((word) =>
  JSON.stringify({
    messages: [
      { role: "user", content: `Backwards: ${word}` },
      { role: "assistant", content: [...word].reverse().join("") },
    ],
  }),
);

/** Without a server and without a key, in a folder of its own. */
describe("tinkerts train sft", () => {
  let folder: string;
  let env: Record<string, string>;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-train-"));
    env = cleanEnv(folder);
    await writeFile(join(folder, "words.jsonl"), `${rows.join("\n")}\n`);
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));
  const sft = (...args: string[]) => run(["train", "sft", ...args], { cwd: folder, env });
  const metrics = async (name: string) =>
    (await readFile(join(folder, name, "metrics.jsonl"), "utf8")).trim().split("\n");

  it("says in a dry run what it would do, and does nothing", async () => {
    const { code, stdout, stderr } = await sft("words.jsonl", "--epochs", "2", "--dry-run", "--price", "3");
    expect(stderr).toContain("the built-in backend does the work");
    expect(code).toBe(0);
    expect(stdout).toMatch(/^model +tinkerts\/nano, a LoRA adapter of rank 32\n/);
    expect(stdout).toMatch(/\nsteps +18: 2 epochs of 9, 4 rows each\n/);
    expect(stdout).toMatch(/\ncost +about 0\.0\d for training on 1,\d{3} tokens\n/);
    expect(stdout).toMatch(/\nfolder +runs\/words-nano\n/);
    await expect(metrics("runs/words-nano")).rejects.toThrow("ENOENT");
    const facts = await sft("words.jsonl", "--dry-run", "--json");
    expect(JSON.parse(facts.stdout)).toMatchObject({ rows: 36, test_rows: 4, folder: "runs/words-nano" });
  }, 60_000);

  it("trains, prints where the weights are, and keeps them for a server", async () => {
    const { code, stdout, stderr } = await sft("words.jsonl", "--rank", "4", "--tensorboard", "--best");
    expect(stderr).toContain("step 9/9  loss ");
    expect(stderr).toContain("after step 9  test/nll ");
    expect(stderr).toContain(
      "Metrics and checkpoints are in runs/words-nano; `tinkerts dashboard runs` shows them.",
    );
    expect(code).toBe(0);
    expect(stdout).toMatch(/^tinker:\/\/\S+\/sampler_weights\/final\n$/);
    expect(await metrics("runs/words-nano")).toHaveLength(10);

    const again = await sft("words.jsonl", "--rank", "4", "--best", "--json");
    expect(JSON.parse(again.stdout)).toMatchObject({
      samplerPath: stdout.trim(),
      steps: 9,
      folder: "runs/words-nano",
      metrics: { "test/nll": expect.any(Number) },
      best: { metric: "test/nll" },
    });
    const other = await sft("words.jsonl", "--rank", "8", "--best");
    expect(other).toMatchObject({ code: 1, stdout: "" });
    expect(other.stderr).toContain("has other settings (lora_rank)");
  }, 60_000);

  it("pauses at Ctrl-C with a checkpoint, and the same command goes on from there", async () => {
    const args = ["train", "sft", "words.jsonl", "--folder", "paused", "--rank", "4", "--epochs", "8"];
    const { child, finished } = start(args, { cwd: folder, env });
    const begun = new Promise<void>((resolve) => {
      let seen = "";
      child.stderr?.on("data", (text: string) => {
        seen += text;
        if (seen.includes("loss ")) resolve();
      });
    });
    await begun;
    child.kill("SIGINT");
    const { code, stderr } = await finished;
    expect(stderr).toMatch(/Paused after \d+ steps?, with a checkpoint: the same call goes on from there/);
    expect(code).toBe(130);
    const done = (await metrics("paused")).length;
    expect(done).toBeLessThan(72);
    const again = await run(args, { cwd: folder, env });
    expect(again.stderr).toContain(`Going on after ${done} steps`);
    expect(again.code).toBe(0);
    const steps = (await metrics("paused")).map((line) => (JSON.parse(line) as { step: number }).step);
    expect(steps).toEqual([...Array(73).keys()]);
  }, 120_000);

  it("explains what is wrong with the way it was called", async () => {
    const { code, stderr } = await sft("no-such-file.jsonl");
    expect(code).toBe(1);
    expect(stderr).toContain("There is no file no-such-file.jsonl");
    await writeFile(join(folder, "bad.jsonl"), '{"messages": [{"role": "user"}]}\n');
    expect((await sft("bad.jsonl")).stderr).toMatch(/bad\.jsonl.*line 1.*messages\[0\]/);
    const server = { ...env, TINKER_BASE_URL: "http://127.0.0.1:1" };
    const nameless = await run(["train", "sft", "words.jsonl"], { cwd: folder, env: server });
    expect(nameless).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("which model? Give --model NAME"),
    });
    expect((await sft("words.jsonl", "--epochs", "0")).stderr).toContain("--epochs");
  }, 60_000);
});
