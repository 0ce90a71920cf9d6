import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { folderForTests } from "../support/folder-for-tests.js";
import { interruptAtStep } from "./command.js";
import { cleanEnv } from "./server.js";
import { runWarm as run } from "./warm-command.js";

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
  const folder = folderForTests("train");
  const env = cleanEnv(folder);
  beforeAll(async () => {
    await writeFile(join(folder, "words.jsonl"), `${rows.join("\n")}\n`);
  });
  const sft = (...args: string[]) => run(["train", "sft", ...args], { cwd: folder, env });
  const metrics = async (name: string) =>
    (await readFile(join(folder, name, "metrics.jsonl"), "utf8")).trim().split("\n");

  it("says in a dry run what it would do, and does nothing", async () => {
    const price = { prefill: 1, cachedPrefill: 1, sample: 1, train: 100 };
    await writeFile(join(folder, "prices.json"), JSON.stringify({ models: { "tinkerts/nano": price } }));
    const { code, stdout, stderr } = await sft(
      ...["words.jsonl", "--epochs", "2", "--dry-run", "--prices", "prices.json"],
    );
    expect(stderr).toContain("the built-in backend does the work");
    expect(code).toBe(0);
    expect(stdout).toMatch(/^model +tinkerts\/nano, a LoRA adapter of rank 32\n/);
    expect(stdout).toMatch(/\nsteps +18: 2 epochs of 9, 4 rows each\n/);
    expect(stdout).toMatch(/\nin all +[\d.,]+k? trained tokens\ncost +about \$0\.\d+\n/);
    expect(stdout).toMatch(/\nfolder +runs\/words-nano\n/);
    await expect(metrics("runs/words-nano")).rejects.toThrow("ENOENT");
    const table = ["question\tanswer", ...WORDS.map((word) => `${word}\t${[...word].reverse().join("")}`)];
    await writeFile(join(folder, "words.tsv"), table.join("\n"));
    const mixed = await sft("words.tsv=1", "words.jsonl=2", "--dry-run", "--budget-tokens", "50");
    expect(mixed.stdout).toMatch(
      /\nformat +(?:prompt-completion and messages|messages and prompt-completion)\n/,
    );
    expect(mixed.stdout).toMatch(
      /\nbudget +50 tokens: the run will stop early, with a checkpoint\nfolder +runs\/words-nano\n/,
    );
    const facts = await sft("words.jsonl", "--dry-run", "--json");
    expect(JSON.parse(facts.stdout)).toMatchObject({
      ...{ rows: 36, test_rows: 4, folder: "runs/words-nano" },
      estimate: {
        isExact: true,
        tokens: { most: { train: expect.any(Number) } },
        usd: { least: 0, most: 0 },
      },
    });
  });

  it("stops a run that diverges, and says once why", async () => {
    const rate = ["--learning-rate", "0.05", "--epochs", "6", "--rank", "2"];
    const { code, stderr } = await sft(
      "words.jsonl",
      ...rate,
      "--stop-on",
      "divergence",
      "--folder",
      "diverged",
    );
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /\nWarning at step 1: the learning rate 0\.05 is 25 times the recommended one\. Try 0\.002/,
    );
    expect(stderr).toMatch(/\nWarning at step \d+: the loss rises: /);
    expect(stderr.match(/The run has diverged: the loss rises/g)).toHaveLength(1);
    expect(stderr).toMatch(
      /\nerror: paused after \d+ steps; the run has diverged: begin another one with other settings\n$/,
    );
  });

  it("stops at a budget, writes a timeline, and continues with a larger budget", async () => {
    const args = ["words.jsonl", "--rank", "2", "--folder", "budgeted"];
    const stopped = await sft(...args, "--budget-tokens", "500");
    expect(stopped.code).toBe(1);
    expect(stopped.stderr).toMatch(
      /paused after \d steps; the same command with a larger --budget or --budget-tokens continues/,
    );
    const ended = await sft(...args, "--budget-tokens", "500000", "--trace", "timeline.json");
    expect(ended.code).toBe(0);
    const events = JSON.parse(await readFile(join(folder, "timeline.json"), "utf8")) as { name: string }[];
    expect(events.filter(({ name }) => name === "step").length).toBeGreaterThan(3);
    const refused = await sft("words.jsonl", "--budget", "0");
    expect(refused.stderr).toContain("It must be a number above 0.");
  });

  it("trains, prints where the weights are, and keeps them for a server", async () => {
    const { code, stdout, stderr } = await sft("words.jsonl", "--rank", "4", "--tensorboard", "--best");
    expect(stderr).toContain("step 9/9  loss ");
    expect(stderr).toContain("after step 9  test/nll ");
    expect(stderr).toMatch(
      /\nTrained 9 steps: loss \d[\d.]* -> \d[\d.]* {2}test\/nll \d[\d.]* -> \d[\d.]*\n/,
    );
    expect(stderr).toContain(
      "\n  npx tinkerts chat --model runs/words-nano\n  npx tinkerts dashboard runs\n",
    );
    expect(stderr).not.toContain("final");
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
    expect(other.stderr).toContain("has other settings (lora_rank was 4, is 8)");
  });

  it("pauses at Ctrl-C with a checkpoint, and run the same command to continue", async () => {
    const args = ["train", "sft", "words.jsonl", "--folder", "paused", "--rank", "4", "--epochs", "2"];
    const { code, stderr } = await interruptAtStep(args, { cwd: folder, env });
    expect(stderr).toMatch(/Paused after \d+ steps?, with a checkpoint: make the same call to continue/);
    expect(code).toBe(130);
    const done = (await metrics("paused")).length;
    expect(done).toBeLessThan(18);
    const again = await run(args, { cwd: folder, env });
    expect(again.stderr).toContain(`Going on after ${done} steps`);
    expect(again.code).toBe(0);
    const steps = (await metrics("paused")).map((line) => (JSON.parse(line) as { step: number }).step);
    expect(steps).toEqual([...Array(19).keys()]);
  });

  it("names bad rows by line, leaves them out when asked to, and says what is held out", async () => {
    const bad = (role: string) =>
      JSON.stringify({
        messages: [
          { role: "user", content: "Q" },
          { role, content: "A" },
        ],
      });
    const content = [
      rows[0],
      ...Array<string>(12).fill(bad("asistant")),
      '{"prompt": "Q", "answer": "A"}',
      "{",
    ];
    await writeFile(join(folder, "mixed.jsonl"), `${content.join("\n")}\n`);
    const refused = await sft("mixed.jsonl", "--dry-run");
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain(
      "error: 13 of 15 rows cannot be trained on:\n  mixed.jsonl line 2: messages[1].role",
    );
    expect(refused.stderr).toContain("did you mean assistant?\n  and 3 more\n");
    expect(refused.stderr.match(/mixed\.jsonl line \d+/g)).toHaveLength(10);
    const skipped = await sft("mixed.jsonl", "--dry-run", "--skip-bad-rows");
    expect(skipped.stdout).toMatch(/\nrows +2 to learn from, none held out, as they are fewer than 20/);
    expect(skipped.stdout).toMatch(
      /\nnote +13 rows left out: cannot be trained on \(first: mixed\.jsonl line 2: /,
    );
  });

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
    // What the call finds wrong is named as it was typed.
    const warm = await sft("words.jsonl", "--dry-run", "--warmup", "500");
    expect(warm.stderr).toContain("error: --warmup must be a fraction below 1");
    const start = await sft("words.jsonl", "--folder", "new", "--start-from", "tinker://abc/weights/none");
    expect(start.stderr).toContain("error: --start-from must be a saved state");
    // Once on the screen; the folder's log has it too.
    expect(start.stderr.match(/must be a saved state/g)).toHaveLength(1);
    const log = await readFile(join(folder, "new", "logs.log"), "utf8");
    expect(log).toMatch(/Step 1 failed \(fatal\): startFrom must be a saved state/);
  });
});
