import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { folderForTests } from "../support/folder-for-tests.js";
import { cleanEnv } from "./server.js";
import { runWarm as run } from "./warm-command.js";

const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");
const pairs = Array.from({ length: 20 }, (_, a) => ({
  prompt: `What is ${a} + 48?`,
  chosen: String(a + 48),
  rejected: String(a + 38),
}));
const questions = pairs.map(({ prompt, chosen }) => ({
  messages: [
    { role: "user", content: prompt },
    { role: "assistant", content: chosen },
  ],
}));

/** Without a server and without a key, in a folder of its own. */
describe("commands that train by comparison and by teacher", () => {
  const folder = folderForTests("train-dpo");
  const env = cleanEnv(folder);
  beforeAll(async () => {
    await writeFile(join(folder, "pairs.jsonl"), lines(pairs));
    await writeFile(join(folder, "questions.jsonl"), lines(questions));
  });
  const train = (...args: string[]) => run(["train", ...args], { cwd: folder, env });
  const metrics = async (name: string) =>
    (await readFile(join(folder, name, "metrics.jsonl"), "utf8"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, number>);

  describe("tinkerts train dpo", () => {
    it("says in a dry run what it would do, and does nothing", async () => {
      const { code, stdout } = await train("dpo", "pairs.jsonl", "--dry-run", "--beta", "0.5");
      expect(code).toBe(0);
      expect(stdout).toContain("which answer is better, with beta 0.5");
      expect(stdout).toMatch(/\nfolder +runs\/pairs-nano\n/);
      await expect(metrics("runs/pairs-nano")).rejects.toThrow("ENOENT");
    });

    it("trains, shows how often the better answer is preferred, and goes on in the same folder", async () => {
      const args = ["dpo", "pairs.jsonl", "--batch-size", "6", "--epochs", "2", "--rank", "4"];
      const { code, stdout, stderr } = await train(...args);
      expect(stderr).toMatch(/step 6\/6 {2}loss 0\.\d+ {2}accuracy [01]\.\d+/);
      expect(code).toBe(0);
      expect(stdout).toMatch(/^tinker:\/\/\S+\/sampler_weights\/final\n$/);
      expect((await metrics("runs/pairs-nano")).at(-1)).toMatchObject({
        "test/accuracy": expect.any(Number),
      });
      const again = await train(...args, "--json");
      expect(JSON.parse(again.stdout)).toMatchObject({ samplerPath: stdout.trim(), steps: 6 });
    });

    it("names the row that is wrong", async () => {
      await writeFile(join(folder, "bad.jsonl"), lines([{ prompt: "Hello!", chosen: "Hi!" }]));
      const { code, stderr } = await train("dpo", "bad.jsonl", "--dry-run");
      expect(code).toBe(1);
      expect(stderr).toMatch(/bad\.jsonl.*line 1.*rejected/);
      expect((await train("dpo", "missing.jsonl")).stderr).toContain("There is no file missing.jsonl");
      expect((await train("dpo", "pairs.jsonl", "--beta", "-1")).stderr).toContain("--beta");
    });
  });

  describe("tinkerts train distill", () => {
    const teacher = ["--teacher", "tinkerts/nano"];

    it("says in a dry run what it would do, either way", async () => {
      const on = await train(
        "distill",
        "questions.jsonl",
        ...teacher,
        "--dry-run",
        "--groups-per-batch",
        "5",
      );
      expect(on.stdout).toMatch(/\nsteps +4 of 5 groups with 4 tries each, synchronous\n/);
      expect(on.stdout).toMatch(/\nteacher +tinkerts\/nano\n/);
      const off = await train(
        "distill",
        "questions.jsonl",
        ...teacher,
        "--off-policy",
        "--dry-run",
        "--json",
      );
      expect(JSON.parse(off.stdout)).toMatchObject({
        batch_size: expect.any(Number),
        folder: "runs/questions-nano",
      });
    });

    it("takes prompts without answers, and names a wrong row", async () => {
      const small = ["--steps", "1", "--group-size", "2", "--groups-per-batch", "2", "--max-tokens", "4"];
      const prompts = [{ prompt: "What is 1 + 2?" }, { messages: [{ role: "user", content: "Hello!" }] }];
      await writeFile(join(folder, "prompts.jsonl"), lines(prompts));
      const { code, stderr } = await train("distill", "prompts.jsonl", ...teacher, ...small);
      expect(stderr).toContain("Trained 1 step");
      expect(code).toBe(0);
      await writeFile(join(folder, "bad.jsonl"), lines([{ text: "What is 1 + 2?" }]));
      const bad = await train("distill", "bad.jsonl", ...teacher, ...small);
      expect(bad.stderr).toContain("bad.jsonl line 1: messages is missing, and so are prompt and completion");
      expect(bad.code).toBe(1);
    });

    it("trains, and shows how far the student is from its teacher and what it says", async () => {
      const small = ["--steps", "2", "--group-size", "2", "--groups-per-batch", "4", "--max-tokens", "8"];
      const { code, stdout, stderr } = await train("distill", "questions.jsonl", ...teacher, ...small);
      expect(stderr).toMatch(/step 2\/2 .*teacher kl -?\d\.\d+/);
      expect(stderr).toMatch(/What is \d+ \+ 48\? → \S/);
      expect(code).toBe(0);
      expect(stdout).toMatch(/^tinker:\/\/\S+\/sampler_weights\/final\n$/);
      const off = await train("distill", "questions.jsonl", ...teacher, "--off-policy", "--folder", "off");
      expect(off.code).toBe(0);
      expect((await metrics("off"))[0]).toMatchObject({ teacher_kl: expect.any(Number) });
    });

    it("explains what is missing, and which options do not go together", async () => {
      const refused = async (...args: string[]) => {
        const { code, stderr } = await train("distill", "questions.jsonl", ...args);
        return `${code}: ${stderr.trim().split("\n").at(-1)}`;
      };
      expect(await refused()).toMatch(/^2: error: which model teaches\? Give --teacher: a base model/);
      expect(await refused(...teacher, "--epochs", "2")).toBe("2: error: --epochs needs --off-policy");
      expect(await refused(...teacher, "--off-policy", "--group-size", "2")).toBe(
        "2: error: --group-size does not go with --off-policy",
      );
      expect(await refused("--teacher", "nobody/nothing")).toMatch(/^1: error: .*nobody\/nothing/);
    });
  });
});
