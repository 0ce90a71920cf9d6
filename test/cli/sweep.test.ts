import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it, vi } from "vitest";
import type { SweepRecord } from "../../src/cookbook/sweeps/index.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { start } from "./command.js";
import { cleanEnv } from "./server.js";
import { runWarm as run } from "./warm-command.js";

const WORDS = ["stick", "apple", "smile", "queen", "truck", "old", "three", "string"];
const backwards = (word: string) => [...word].reverse().join("");

/** Without a server and without a key, in a folder of its own. */
describe("tinkerts sweep", () => {
  const folder = folderForTests("sweep-command");
  const env = cleanEnv(folder);
  const write = (name: string, text: string) => writeFile(join(folder, name), text);
  const sweep = (...args: string[]) => run(["sweep", ...args, "--no-dashboard"], { cwd: folder, env });
  const record = async (name: string): Promise<SweepRecord> =>
    JSON.parse(await readFile(join(folder, name, "sweep.json"), "utf8"));

  beforeAll(async () => {
    const rows = WORDS.flatMap((word) => Array<string>(5).fill(`${word},${backwards(word)}`));
    await write("words.csv", `question,answer\n${rows.join("\n")}\n`);
    await write(
      "rates.yaml",
      `# Which rate?
train: sft
files: words.csv
model: tinkerts/nano
options: { rank: 4, maxSteps: 4 }
grid:
  learningRate: [1e-5, 2e-3, 1e-3]
`,
    );
  });

  it("trains each setting, and prints them with the best first", async () => {
    const { code, stdout, stderr } = await sweep("rates.yaml");
    expect({ code, stderr: stderr.slice(stderr.indexOf("1/3")) }).toEqual({
      code: 0,
      stderr: expect.stringMatching(
        /^1\/3 {2}001-learning-rate-0\.00001 {2}running\n1\/3 .* finished {2}test\/nll \d\.\d+\n2\/3[\s\S]*The recommended learning rate of the model is 0\.002\.\nThe best test\/nll has learningRate 0\.002\./,
      ),
    });
    const lines = stdout.split("\n");
    expect(lines[0]).toMatch(/^LEARNING RATE +TEST\/NLL +STEPS +STATUS +FOLDER$/);
    expect(lines[1]).toMatch(/^0\.002 +\d\.\d+ +4 +finished +002-learning-rate-0\.002$/);
    expect(lines.slice(2, 4).map((line) => line.split(" ")[0])).toEqual(["0.001", "0.00001"]);
    const again = await sweep("rates.yaml", "--json");
    const { isFinished, best, ...kept } = JSON.parse(again.stdout);
    expect({ isFinished, rate: best.settings.learningRate }).toEqual({ isFinished: true, rate: 0.002 });
    expect(kept).toEqual(await record("sweeps/rates"));
    const csv = await sweep("rates.yaml", "--format", "csv");
    expect(csv.stdout).toMatch(
      /^learningRate,value,costUsd,steps,status,folder,error,samplerPath,statePath\r?\n0\.002,\d/,
    );
  });

  it("goes on after kill -9 to the same numbers", async () => {
    const plan = { ...process.env, ...env } as Record<string, string>;
    const args = ["sweep", "rates.yaml", "--folder", "killed", "--no-dashboard"];
    const { child, finished } = start(args, { cwd: folder, env: plan });
    await vi.waitFor(async () => expect((await record("killed")).runs[0]!.status).toBe("finished"));
    child.kill("SIGKILL");
    await finished;
    const { runs: left } = await record("killed");
    expect(left.every(({ status }) => status === "finished")).toBe(false);
    const { code } = await sweep("rates.yaml", "--folder", "killed");
    expect(code).toBe(0);
    const values = async (name: string) => (await record(name)).runs.map(({ value }) => value);
    expect(await values("killed")).toEqual(await values("sweeps/rates"));
  });

  it("takes a program as its plan, a failing run does not end the others, and ends with 1", async () => {
    await write(
      "plan.mts",
      `const rows: object[] = ${JSON.stringify(WORDS.map((prompt) => ({ prompt, completion: backwards(prompt) })))};
import { conversations } from "${new URL("../../dist/bundle/cookbook.js", import.meta.url).href}";
export default {
  train: "sft",
  options: { data: conversations(rows), rank: 4, maxSteps: 2, testSize: 2 },
  list: [{ seed: 1 }, { seed: 2, startFrom: "tinker://no-such-run/weights/final" }, { seed: 3, adam: { beta1: 0.5 } }],
  metric: "train_mean_nll",
  folder: "mixed",
};
`,
    );
    const { code, stdout, stderr } = await sweep("plan.mts", "--at-once", "2");
    const { runs } = await record("mixed");
    expect(runs.map(({ status, error }) => error ?? status)).toEqual([
      "finished",
      expect.stringContaining("startFrom must be"),
      "finished",
    ]);
    expect(code).toBe(1);
    expect(stderr).toContain("error: 1 of 3 runs failed; run the same command to try them again");
    expect(stdout).toMatch(/^SEED +START FROM +ADAM +TRAIN_MEAN_NLL/);
    expect(stdout).toMatch(/\n2 +tinker:\/\/no-such-run\S+ +- +- +- +failed .*startFrom must be/);
  });

  it.each([
    [
      "rl",
      "files: sums.mjs\noptions: { steps: 1, groupSize: 2, groupsPerBatch: 2, maxTokens: 4, rank: 4 }",
      "env/all/reward/total",
      "max",
    ],
    ["dpo", "files: pairs.csv\noptions: { maxSteps: 1, rank: 4 }", "dpo_loss", "min"],
    [
      "distill",
      "files: words.csv\noptions: { teacher: tinkerts/nano, maxTokens: 4, steps: 1, rank: 4, groupSize: 2, groupsPerBatch: 1 }",
      "teacher_kl",
      "min",
    ],
    [
      "distill",
      "offPolicy: true\nfiles: words.csv\noptions: { teacher: tinkerts/nano, topk: 2, maxSteps: 1, rank: 4 }",
      "train_mean_nll",
      "min",
    ],
  ])("trains %s", async (kind, plan, metric, direction) => {
    await write("pairs.csv", "prompt,chosen,rejected\n1+1=,2,3\n2+2=,4,5\n");
    await write(
      "sums.mjs",
      'export default { problems: [{ prompt: "1+1=" }, { prompt: "2+2=" }], reward: ({ tokens }) => tokens.length % 2 };',
    );
    await write("kind.yaml", `train: ${kind}\n${plan}\ngrid: { learningRate: [1e-4] }\nmetric: ${metric}\n`);
    const { code, stdout } = await sweep(
      "kind.yaml",
      "--json",
      "--folder",
      `kinds/${metric.replaceAll("/", "-")}`,
    );
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      metric,
      direction,
      runs: [{ status: "finished", steps: 1, value: expect.any(Number) }],
    });
  });

  it("lists the runs of a plan without training", async () => {
    await write(
      "dry.json",
      JSON.stringify({
        train: "sft",
        files: ["words.csv"],
        grid: { rank: [4, 8], learningRate: [0.1, 0.2] },
      }),
    );
    const { code, stdout, stderr } = await sweep("dry.json", "--dry-run");
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: "RANK  LEARNING RATE\n4     0.1\n4     0.2\n8     0.1\n8     0.2\n",
    });
    expect(stderr).toBe("4 runs\n");
  });

  it.each([
    ["none.yaml", undefined, /There is no file none\.yaml/],
    ["bad.yaml", "train: [", /bad\.yaml is not YAML: /],
    ["twice.yaml", "train: sft\ntrain: dpo", /twice\.yaml is not YAML: Map keys must be unique/],
    ["empty.yaml", "", /empty\.yaml: .* must be an object, got null/],
    ["kind.yaml", "train: ppo", /kind\.yaml: train must be "sft", "dpo", "rl" or "distill", got "ppo"/],
    ["typo.yaml", "train: sft\ngrdi: {}", /typo\.yaml: unknown field grdi; did you mean grid\?/],
    ["files.yaml", "train: sft\ngrid: { rank: [4] }", /files: which data\?/],
    [
      "option.yaml",
      "train: sft\nfiles: words.csv\ngrid: { learning_rate: [1] }",
      /unknown field grid\.learning_rate; did you mean learningRate\?/,
    ],
    [
      "value.yaml",
      "train: sft\nfiles: words.csv\ngrid: { rank: [4, x] }",
      /grid\.rank\[1\] must be a positive integer, got "x"/,
    ],
    [
      "common.yaml",
      "train: sft\nfiles: words.csv\noptions: { epochs: 0 }\ngrid: { rank: [4] }",
      /options\.epochs must be a positive integer, got 0/,
    ],
    ["nothing.yaml", "train: sft\nfiles: words.csv", /grid is missing, and so is list/],
    [
      "bomb.yaml",
      `a: &a [${"x,".repeat(9)}x]\n${[..."bcdefgh"].map((name, index) => `${name}: &${name} [${Array(9).fill(`*${"abcdefgh"[index]}`).join(",")}]`).join("\n")}`,
      /bomb\.yaml is not YAML: Excessive alias count/,
    ],
    ["words.csv", undefined, /words\.csv is not a program/],
  ])("%s is refused before anything is trained", async (name, text, message) => {
    if (text !== undefined) await write(name, text);
    const { code, stderr, stdout } = await sweep(name);
    expect({ code: code === 0, stdout }).toEqual({ code: false, stdout: "" });
    expect(stderr).toMatch(message);
    expect(stderr).not.toContain("built-in backend");
  });
});
