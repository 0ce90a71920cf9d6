import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { folderForTests } from "../support/folder-for-tests.js";
import { interruptAtStep, run } from "./command.js";
import { cleanEnv } from "./server.js";
import { noTerminal, openTerminal } from "./terminal.js";

const SUMS = `
const problems = [];
for (let a = 0; a < 6; a += 1)
  for (let b = 0; b < 6; b += 1) problems.push({ prompt: \`What is \${a} + \${b + 45}?\`, answer: String(a + b + 45) });
const reward = ({ problem, text }) => (text.trim() === problem.answer ? 1 : 0);
`;
const SMALL = ["--group-size", "4", "--groups-per-batch", "4", "--max-tokens", "8", "--rank", "4"];

/** Without a server and without a key, in a folder of its own. */
describe("tinkerts train rl", () => {
  const folder = folderForTests("train-rl");
  const env = cleanEnv(folder);
  beforeAll(async () => {
    await writeFile(join(folder, "sums.mjs"), `${SUMS} export default { problems, reward, groupSize: 3 };`);
  });
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
    expect(plain.stdout).toMatch(/\nepisodes +192, of 36 problems that come 1\.8 times each\n/);
    expect(plain.stdout).toMatch(
      /\ntokens +at most [\d,]+ sampled \(4\d\d an answer\), about [\d,]+ read in prompts\n/,
    );
    const other = await rl("sums.mjs", "--dry-run", "--json", "--group-size", "5", "--mode", "asynchronous");
    expect(JSON.parse(other.stdout)).toMatchObject({ group_size: 5, mode: "asynchronous", episodes: 320 });
    await expect(metrics("runs/sums-nano")).rejects.toThrow("ENOENT");
  });

  it("trains, shows the reward and what the model said, and prints where the weights are", async () => {
    const { code, stdout, stderr } = await rl("sums.mjs", "--steps", "3", ...SMALL);
    expect(stderr).toMatch(/step 3\/3 {2}reward [01]\.\d{4}/);
    expect(stderr).toMatch(/\n {2}reward [01]\.00 {2}What is \d \+ \d+\? → \S/);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^tinker:\/\/\S+\/sampler_weights\/final\n$/);
    const steps = await metrics("runs/sums-nano");
    expect(steps.filter((step) => step["env/all/reward/total"] !== undefined)).toHaveLength(3);
  });

  /** Lines that stay on a terminal: one that is written again replaces what stands in it. */
  const keptLines = (text: string) =>
    text.split("\n").map((line) => line.replace(/\r$/, "").split("\r\x1b[K").at(-1)!);
  /** How a run ends for those who watch; its commands can be copied from any terminal. */
  function expectSummary(lines: readonly string[], name: string) {
    expect(lines.filter((line) => /^step \d\/3 {2}reward \d/.test(line))).toHaveLength(3);
    expect(lines.find((line) => line.startsWith("Trained 3 steps"))).toMatch(
      /: reward \d[\d.]* -> \d[\d.]*$/,
    );
    expect(lines).toContain(`  npx tinkerts chat --model '${name}'`);
    expect(lines).toContain(`  npx tinkerts dashboard '${dirname(name)}'`);
    expect(lines.filter((line) => line.includes("/sampler_weights/final"))).toHaveLength(1);
  }
  // Longer than a narrow terminal, and with a space.
  const longName = (end: string) => `my runs/${"a name that is long ".repeat(4)}${end}`;
  const watched = (name: string) => [
    ...["train", "rl", "digits.mjs", "--steps", "3", "--folder", name, "--no-dashboard"],
    ...["--learning-rate", "6e-3", ...SMALL],
  ];
  // Any difference will do.
  const digits =
    'export default { problems: ["57 + 86", "68 + 75"].map((sum) => ({ prompt: "What is " + sum + "?" })), reward: ({ tokens }) => (tokens.reduce((sum, token) => sum + token, 0) % 5) / 4 };';

  it.skipIf(noTerminal).each([80, 200])(
    "keeps its steps and ends with a summary in a terminal of %d columns",
    async (columns) => {
      await writeFile(join(folder, "digits.mjs"), digits);
      const name = longName(String(columns));
      const terminal = openTerminal(watched(name), { cwd: folder, env, columns });
      expect(await terminal.ended).toBe(0);
      expectSummary(keptLines(terminal.text()), name);
    },
  );

  it("keeps its steps and ends with a summary without a terminal, in plain lines", async () => {
    await writeFile(join(folder, "digits.mjs"), digits);
    const name = longName("plain");
    const { code, stdout, stderr } = await run(watched(name), { cwd: folder, env });
    expect(code).toBe(0);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are looked for.
    expect(stdout + stderr).not.toMatch(/[\r\x1b]/);
    expectSummary(`${stderr}${stdout}`.split("\n"), name);
  });

  it("trains an agent that is a program, with problems from a file and a reward from a module", async () => {
    await writeFile(
      join(folder, "agent.mjs"),
      `const { question } = JSON.parse(process.env.TINKERTS_PROBLEM);
       const answer = await fetch(process.env.OPENAI_BASE_URL + "/chat/completions", {
         method: "POST",
         headers: { "content-type": "application/json", authorization: "Bearer " + process.env.OPENAI_API_KEY },
         body: JSON.stringify({ model: "gpt-5", messages: [{ role: "user", content: question }] }),
       });
       console.log((await answer.json()).choices[0].message.content);`,
    );
    await writeFile(
      join(folder, "rewards.ts"),
      `let count = 0;
       export default ({ exitCode, output, text }: { exitCode: number; output: string; text: string }) => {
         if (exitCode !== 0 || output !== text + "\\n") throw new Error("unexpected " + output);
         return count++ % 2;
       };`,
    );
    await writeFile(
      join(folder, "problems.jsonl"),
      '{"question": "What is 2 + 3?"}\n\n{"question": "What is 4 + 5?"}\n',
    );
    const agent = ["--agent", "node 'agent.mjs'", "problems.jsonl"];
    const small = [
      "--group-size",
      "2",
      "--groups-per-batch",
      "2",
      "--max-tokens",
      "8",
      "--rank",
      "4",
      "--steps",
      "1",
    ];
    const { code, stdout, stderr } = await rl(...agent, "--reward", "./rewards.ts", ...small);
    expect(stderr).toContain("step 1/1  reward 0.5000");
    expect(code).toBe(0);
    expect(stdout).toMatch(/^tinker:\/\/\S+\/sampler_weights\/final\n$/);
    expect(await rl(...agent)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("--agent needs --reward"),
    });
    expect(await rl("--agent", "node 'a", "--reward", "./rewards.ts", "problems.jsonl")).toMatchObject({
      ...{ code: 2, stderr: expect.stringContaining("--agent has a quote without its end") },
    });
    await writeFile(join(folder, "broken.jsonl"), '{"question": 1}\n{"question');
    const broken = await rl("--agent", "node agent.mjs", "--reward", "./rewards.ts", "broken.jsonl");
    expect(broken).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/broken.jsonl.*2: expected a problem as JSON/),
    });
  });

  it("pauses at Ctrl-C with a checkpoint, and run the same command to continue", async () => {
    const args = ["train", "rl", "sums.mjs", "--folder", "paused", "--steps", "8", ...SMALL];
    const { code, stderr } = await interruptAtStep(args, { cwd: folder, env });
    expect(code).toBe(130);
    expect(stderr).toMatch(
      /\nPausing after step \d+.*; then a checkpoint is saved\nCtrl-C again ends at once/,
    );
    const done = Number(/Paused after (\d+) steps?/.exec(stderr)?.[1]);
    expect(done).toBeLessThan(8);
    const again = await run(args, { cwd: folder, env });
    expect(again.stderr).toContain(`Going on after ${done} steps`);
    expect(again.code).toBe(0);
    const steps = (await metrics("paused")).filter((each) => each["env/all/reward/total"] !== undefined);
    expect(steps.map(({ step }) => step)).toEqual([...Array(8).keys()]);
  });

  it("shows the line of a reward that throws, with the problem and the answer, and calls a timeout so", async () => {
    await writeFile(
      join(folder, "throws.ts"),
      `interface Sum { prompt: string; answer?: { text: string } }
      const right = (problem: Sum, text: string): boolean =>
        problem.answer!.text === text;
      export default {
        problems: [{ prompt: "What is 1 + 2?" }] as Sum[],
        reward: ({ problem, text }: { problem: Sum; text: string }) => Number(right(problem, text)),
      };`,
    );
    const thrown = await rl("throws.ts", ...SMALL);
    expect(thrown.code).toBe(1);
    expect(thrown.stderr).toMatch(
      /\nerror: Group \d failed: The reward failed: TypeError: .*\n {2}problem: \{"prompt":"What is 1 \+ 2\?"\}\n {2}answer: ".*"\n {2}at throws\.ts:3\n/,
    );
    await writeFile(
      join(folder, "hangs.mjs"),
      `${SUMS} export default { problems, reward: () => new Promise(() => {}), termination: { graderTimeoutMs: 1 } };`,
    );
    const hung = await rl("hangs.mjs", ...SMALL);
    expect(hung.stderr).toMatch(/\nerror: Group \d failed: The reward took more than 1 ms\.\n {2}problem: /);
  });

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
  });

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
    expect(await refused("{}", "data.jsonl")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("data.jsonl is not a program: expected a .ts, .mts, .js or .mjs file"),
    });
    const disk = 'throw new Error("no words", { cause: new Error("the disk is gone") });';
    expect((await refused(disk)).stderr).toBe(
      "error: no words\ncaused by: the disk is gone\n  at wrong.mjs:1\n",
    );
    expect((await rl("sums.mjs", "--mode", "sometimes")).stderr).toContain("--mode");
    expect((await rl("sums.mjs", "--loss", "mse")).stderr).toContain("mse");
  });

  it("reads TypeScript, with the modules that it imports", async () => {
    await writeFile(
      join(folder, "reward.ts"),
      `export enum Verdict { Wrong, Right }
      export const right = (text: string, answer: string): number =>
        text === answer ? Verdict.Right : Verdict.Wrong;`,
    );
    await writeFile(
      join(folder, "sums.ts"),
      'export const sums = [{ prompt: "What is 1 + 2?", answer: "3" }] as const;',
    );
    await writeFile(
      join(folder, "typed.ts"),
      `import { right } from "./reward.js";
      import { sums } from "./sums";
      import type { Problem } from "tinkerts/cookbook";
      interface Sum { readonly prompt: string; readonly answer: string }
      const problems: readonly (Sum & Problem)[] = sums;
      const reward = ({ problem, text }: { problem: Sum; text: string }) => right(text, problem.answer);
      export default { problems, reward };`,
    );
    const { code, stdout, stderr } = await rl("typed.ts", "--dry-run");
    expect({ code, warning: /warning/i.exec(stderr)?.[0] }).toEqual({ code: 0, warning: undefined });
    expect(stdout).toContain("runs/typed-nano");
    await writeFile(join(folder, "broken.ts"), "export default { problems: ] }");
    expect((await rl("broken.ts", "--dry-run")).stderr).toContain("broken.ts");
  });
});
