import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { run, start } from "./command.js";
import { cleanEnv } from "./server.js";

const SUMS = `
const problems = [];
for (let a = 0; a < 6; a += 1)
  for (let b = 0; b < 6; b += 1) problems.push({ prompt: \`What is \${a} + \${b + 45}?\`, answer: String(a + b + 45) });
const reward = ({ problem, text }) => (text.trim() === problem.answer ? 1 : 0);
`;
const SMALL = ["--group-size", "4", "--groups-per-batch", "4", "--max-tokens", "8", "--rank", "4"];

/** Without a server and without a key, in a folder of its own. */
describe("tinkerts train rl", () => {
  let folder: string;
  let env: Record<string, string>;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-train-rl-"));
    env = cleanEnv(folder);
    await writeFile(join(folder, "sums.mjs"), `${SUMS} export default { problems, reward, groupSize: 3 };`);
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));
  const rl = (...args: string[]) => run(["train", "rl", ...args], { cwd: folder, env });
  const metrics = async (name: string) =>
    (await readFile(join(folder, name, "metrics.jsonl"), "utf8"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, number>);

  it("says in a dry run what it would do; the command line goes before the file", async () => {
    const plain = await rl("sums.mjs", "--dry-run");
    expect(plain).toMatchObject({ code: 0 });
    expect(plain.stdout).toMatch(/\nsteps +2 of 32 groups with 3 tries each, synchronous\n/);
    expect(plain.stdout).toMatch(/\nfolder +runs\/sums-nano\n/);
    const other = await rl("sums.mjs", "--dry-run", "--json", "--group-size", "5", "--mode", "asynchronous");
    expect(JSON.parse(other.stdout)).toMatchObject({ group_size: 5, mode: "asynchronous" });
    await expect(metrics("runs/sums-nano")).rejects.toThrow("ENOENT");
  }, 60_000);

  it("trains, shows the reward and what the model said, and prints where the weights are", async () => {
    const { code, stdout, stderr } = await rl("sums.mjs", "--steps", "3", ...SMALL);
    expect(stderr).toMatch(/step 3\/3 {2}reward [01]\.\d{4}/);
    expect(stderr).toMatch(/\n {2}reward [01]\.00 {2}What is \d \+ \d+\? → \S/);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^tinker:\/\/\S+\/sampler_weights\/final\n$/);
    const steps = await metrics("runs/sums-nano");
    expect(steps.filter((step) => step["env/all/reward/total"] !== undefined)).toHaveLength(3);
  }, 120_000);

  it("pauses at Ctrl-C with a checkpoint, and the same command goes on from there", async () => {
    const args = ["train", "rl", "sums.mjs", "--folder", "paused", "--steps", "30", ...SMALL];
    const { child, finished } = start(args, { cwd: folder, env });
    await new Promise<void>((resolve) => {
      let seen = "";
      child.stderr?.on("data", (text: string) => {
        seen += text;
        if (/step +\d+\/30/.test(seen)) resolve();
      });
    });
    child.kill("SIGINT");
    const { code, stderr } = await finished;
    expect(code).toBe(130);
    const done = Number(/Paused after (\d+) steps?/.exec(stderr)?.[1]);
    expect(done).toBeLessThan(30);
    const again = await run(args, { cwd: folder, env });
    expect(again.stderr).toContain(`Going on after ${done} steps`);
    expect(again.code).toBe(0);
    const steps = (await metrics("paused")).filter((each) => each["env/all/reward/total"] !== undefined);
    expect(steps.map(({ step }) => step)).toEqual([...Array(30).keys()]);
  }, 180_000);

  it("takes environments, and a function that makes them", async () => {
    const group = "{ makeEnvironments: () => [] }";
    await writeFile(join(folder, "source.mjs"), `export default { length: 12, group: () => (${group}) };`);
    await writeFile(
      join(folder, "made.mjs"),
      `export default ({ renderer, groupSize, seed }) =>
        ({ length: renderer.stopSequences.length * groupSize * seed, group: () => (${group}) });`,
    );
    const plan = async (...args: string[]) =>
      JSON.parse((await rl(...args, "--dry-run", "--json", "--groups-per-batch", "4")).stdout) as unknown;
    expect(await plan("source.mjs")).toMatchObject({ steps: 3 });
    expect(await plan("made.mjs", "--group-size", "8", "--seed", "3")).toMatchObject({ steps: 6 });
  }, 60_000);

  it("explains what is wrong with the file, and with the way it was called", async () => {
    const refused = async (content: string, name = "wrong.mjs") => {
      await writeFile(join(folder, name), content);
      return rl(name, "--dry-run");
    };
    expect(await rl("missing.mjs")).toMatchObject({
      code: 2,
      stderr: "error: There is no file missing.mjs\n",
    });
    expect(await refused("export default 5")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("wrong.mjs must export as its default { problems, reward }"),
    });
    expect(await refused("export const problems = [];")).toMatchObject({ code: 2 });
    expect((await refused("export default { problems: [] }")).stderr).toContain("reward must be a function");
    const misspelt = `${SUMS} export default { problems, reward, grupSize: 4 };`;
    expect((await refused(misspelt)).stderr).toContain("grupSize");
    expect((await refused("export default {")).code).toBe(1);
    expect((await rl("sums.mjs", "--mode", "sometimes")).stderr).toContain("--mode");
    expect((await rl("sums.mjs", "--loss", "mse")).stderr).toContain("mse");
  }, 120_000);

  it("reads TypeScript, with the modules that it imports", async () => {
    await writeFile(
      join(folder, "reward.ts"),
      "export const right = (text: string, answer: string): number => (text === answer ? 1 : 0);",
    );
    await writeFile(
      join(folder, "typed.ts"),
      `import { right } from "./reward.js";
      import type { Problem } from "tinkerts/cookbook";
      interface Sum { readonly prompt: string; readonly answer: string }
      const problems: readonly (Sum & Problem)[] = [{ prompt: "What is 1 + 2?", answer: "3" }];
      const reward = ({ problem, text }: { problem: Sum; text: string }) => right(text, problem.answer);
      export default { problems, reward };`,
    );
    const { code, stdout } = await rl("typed.ts", "--dry-run");
    expect(code).toBe(0);
    expect(stdout).toContain("runs/typed-nano");
    await writeFile(join(folder, "broken.ts"), "export default { problems: ] }");
    expect((await rl("broken.ts", "--dry-run")).stderr).toContain("broken.ts");
  }, 60_000);
});
