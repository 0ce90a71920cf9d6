import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/index.js";
import { start } from "./command.js";
import { cleanEnv } from "./server.js";
import { talkingServerForTests } from "./talking-engine.js";
import { noTerminal, openTerminal, type Terminal } from "./terminal.js";
import { runWarm as run } from "./warm-command.js";

const server = await talkingServerForTests();
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "tinkerts-eval-"));
  rows(sum(1, 1), sum(2, 2), sum(3, 3));
});
afterEach(() => {
  server.engine.open();
  rmSync(folder, { recursive: true });
});

const sum = (a: number, b: number) => ({ prompt: `What is ${a} + ${b}?`, answer: a + b });
const rows = (...tasks: unknown[]) =>
  writeFileSync(join(folder, "sums.jsonl"), tasks.map((task) => `${JSON.stringify(task)}\n`).join(""));
const nano = ["eval", "sums.jsonl", "--model", "tinkerts/nano"];
/** One after the other, so that the scripted answers go to the tasks in order. */
const scripted = (args: readonly string[]) =>
  run([...nano, "--concurrency", "1", ...args], { env: server.env, cwd: folder });
const trajectories = () =>
  readFileSync(join(folder, "out/sums/trajectories.jsonl"), "utf8").trim().split("\n");

describe("tinkerts eval", () => {
  it("prints how many answers are right, with some that are not", async () => {
    server.engine.answers = ["2", "It is 5.", "6"];
    expect(await scripted(["--grade", "number"])).toEqual({
      code: 0,
      stdout:
        "sums: 66.7% ± 33.3%, 2 of 3 answers right\n\n" +
        "Wrong, for example:\n  What is 2 + 2?  →  It is 5.  (right: 4)\n",
      stderr: "",
    });
    expect(server.engine.requests[0]).toMatchObject({ temperature: 0.6, numSamples: 1 });
  });

  it("passes its options on", async () => {
    server.engine.answers = ["2", "0", "2", "0"];
    const { stdout } = await scripted([
      ...["--grade", "exact", "--samples", "4", "--pass-at", "2", "--limit", "1", "--system", "Be brief."],
      ...["--temperature", "0.2", "--max-tokens", "9", "--seed", "3", "--renderer", "role_colon"],
    ]);
    expect(stdout).toMatch(/^sums: 50\.0%, 2 of 4 answers right\n {2}pass@2 83\.3%\n/);
    expect(server.engine.requests).toHaveLength(1);
    expect(server.engine.requests[0]).toMatchObject({
      temperature: 0.2,
      maxTokens: 9,
      seed: 3,
      numSamples: 4,
    });
    expect(server.engine.heard[0]).toMatch(/^System: Be brief\.\n\nUser: What is 1 \+ 1\?\n\nAssistant:$/);
  });

  it("prints JSON with every example, or a line of CSV", async () => {
    server.engine.answers = ["2", "4", "6"];
    const { stdout } = await scripted(["--grade", "number", "--json"]);
    expect(JSON.parse(stdout)).toMatchObject({
      name: "sums",
      score: 1,
      standardError: 0,
      examples: [{ text: "2", reward: 1 }, { text: "4" }, { text: "6" }],
    });
    const csv = await scripted(["--grade", "number", "--format", "csv"]);
    expect(csv.stdout).toMatch(/^name,score,.*\nsums,0,/);
  });

  it("grades with your own module, and notices when it changes", async () => {
    const grader = join(folder, "mine.mjs");
    writeFileSync(grader, "export default ({ text, task }) => text.length / task.row.most;\n");
    rows({ prompt: "?", most: 8, id: "one" });
    server.engine.answers = ["four"];
    const { stdout } = await scripted(["--grade", "./mine.mjs", "--folder", "out"]);
    expect(stdout).toMatch(/^sums: 50\.0%, 0 of 1 answers right/);
    writeFileSync(grader, "export default () => true;\n");
    const changed = await scripted(["--grade", "./mine.mjs", "--folder", "out"]);
    expect(changed).toMatchObject({ code: 1, stderr: expect.stringContaining("gradeVersion was") });
    writeFileSync(grader, "export const grade = 1;\n");
    expect(await scripted(["--grade", "./mine.mjs"])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("must export a grader as its default"),
    });
    expect(await scripted(["--grade", "./none.mjs"])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("--grade cannot be read"),
    });
  });

  it("lets another model judge", async () => {
    rows({ prompt: "Say hello." });
    server.engine.answers = ["Hello!", "Friendly. [[yes]]"];
    const judged = ["--grade", "judge", "--judge-model", "tinkerts/nano", "--rubric", "It is friendly."];
    expect(await scripted(judged)).toMatchObject({
      code: 0,
      stdout: "sums: 100.0%, 1 of 1 answers right\n",
    });
    expect(server.engine.heard[1]).toContain("It is friendly.");
    server.engine.answers = ["Hello!", "Hm."];
    const { code, stdout } = await scripted(judged);
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: "sums: 0.0%, 0 of 1 answers right\n  1 without a verdict\n",
    });
  });

  it("says what was cut off and what failed, and fails itself when nothing worked", async () => {
    const grader = join(folder, "mine.mjs");
    writeFileSync(
      grader,
      'export default ({ text }) => { if (text === "4") throw new Error("boom"); return true; };\n',
    );
    server.engine.answers = ["2222222", "4", "6"];
    const { stdout } = await scripted(["--grade", "./mine.mjs", "--max-tokens", "4"]);
    expect(stdout).toBe(
      "sums: 33.3% ± 33.3%, 1 of 3 answers right\n" +
        "  1 cut off, 1 failed; 100.0% of the others\n  the first failure: the grader failed: boom\n",
    );
    writeFileSync(grader, 'export default () => { throw new Error("boom"); };\n');
    expect(await scripted(["--grade", "./mine.mjs"])).toEqual({
      code: 1,
      stdout: "",
      stderr: "error: no task could be done: the grader failed: boom\n",
    });
    expect(await scripted(["--grade", "number", "--max-tokens", "5000"])).toEqual({
      code: 1,
      stdout: "",
      stderr: expect.stringMatching(/^error: no task could be done: .*prompt tokens leave room for/),
    });
  });

  it("names a wrong row by its line and field, before anything is sampled", async () => {
    const failing = async (...tasks: unknown[]) => {
      rows(...tasks);
      const { code, stderr } = await scripted(["--grade", "number"]);
      expect(code).toBe(1);
      return stderr;
    };
    expect(await failing(sum(1, 1), { prompt: "?" })).toMatch(
      /^error: sums\.jsonl line 2: answer is missing/,
    );
    expect(await failing({ question: "?", answer: 1 })).toMatch(
      /^error: sums\.jsonl line 1: prompt or messages is missing, got question, answer/,
    );
    expect(await failing({ messages: [{ role: "user", content: 3 }], answer: 1 })).toMatch(
      /^error: sums\.jsonl line 1: messages\[0\]\.content must be/,
    );
    expect(server.engine.requests).toEqual([]);
  });

  it("ends with 2 where its options are wrong", async () => {
    const usage = async (args: readonly string[]) => {
      const { code, stderr } = await run(["eval", "sums.jsonl", ...args], { env: server.env, cwd: folder });
      expect(code).toBe(2);
      return stderr;
    };
    expect(await usage([])).toContain("which model?");
    expect(await usage(["--model", "tinkerts/nano"])).toContain("how are answers graded?");
    expect(await usage(["--model", "tinkerts/nano", "--grade", "numbers"])).toContain(
      "--grade numbers is not known",
    );
    expect(await usage(["--model", "tinkerts/nano", "--grade", "judge"])).toContain("who judges?");
    expect(await usage(["--model", "m", "--grade", "exact", "--rubric", "x"])).toContain(
      "are for --grade judge",
    );
    expect(await usage(["--model", "m", "--grade", "exact", "--pass-at", "3"])).toContain(
      "--samples 3 or more",
    );
  });

  it("samples nothing in a dry run", async () => {
    expect(await scripted(["--grade", "number", "--samples", "2", "--dry-run"])).toEqual({
      code: 0,
      stdout: "\n<|im_start|>user\nWhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\n\n",
      stderr: expect.stringMatching(
        /^3 tasks, 6 answers\. Prompts have \d+ tokens together, the longest \d+\./,
      ),
    });
    const { stdout } = await scripted(["--grade", "number", "--dry-run", "--json"]);
    expect(JSON.parse(stdout)).toMatchObject({ tasks: 3, answers: 3, longestPrompt: expect.any(Number) });
    expect(server.engine.requests).toEqual([]);
  });

  it("goes on after an interrupt, and asks nothing twice", async () => {
    rows(...Array.from({ length: 6 }, (_, index) => sum(index, 1)));
    const args = [...nano, "--grade", "number", "--folder", "out", "--concurrency", "1"];
    let given = 0;
    server.engine.answers = Object.assign([], {
      shift: () => {
        given += 1;
        if (given === 3) server.engine.hold();
        return "1";
      },
    });
    const command = start(args, { env: server.env, cwd: folder });
    await expect.poll(() => server.engine.requests.length).toBe(3);
    command.child.kill("SIGINT");
    expect(await command.finished).toEqual({
      code: 130,
      stdout: "",
      stderr: "2 of 6 tasks are done: run the same command to continue.\ninterrupted\n",
    });
    expect(trajectories()).toHaveLength(2);
    server.engine.open();
    const first = await run(args, { env: server.env, cwd: folder });
    expect(first.code).toBe(0);
    expect(server.engine.requests).toHaveLength(3 + 4);
    expect(trajectories()).toHaveLength(6);
    const again = await run(args, { env: server.env, cwd: folder });
    expect(again.stdout).toBe(first.stdout);
    expect(again.stdout).toMatch(/of 6 answers right/);
    expect(server.engine.requests).toHaveLength(3 + 4);
  });

  it("works without a server and without a key, with the built-in backend", async () => {
    rows(...Array.from({ length: 20 }, (_, index) => sum((index * 7) % 50, (index * 13) % 50)));
    const args = [...nano, "--grade", "number", "--temperature", "0", "--json"];
    const { code, stdout, stderr } = await run(args, { env: cleanEnv(folder), cwd: folder });
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr:
        "No server and no API key are set: the built-in backend does the work and keeps its data in .tinkerts.\n",
    });
    const { score, numErrors } = JSON.parse(stdout);
    expect(numErrors).toBe(0);
    expect(score).toBeGreaterThan(0.2);
    const ofFolder = [...args, "--model", defaultModel.path];
    const same = await run(ofFolder, { env: cleanEnv(folder), cwd: folder });
    expect(JSON.parse(same.stdout)).toMatchObject({ score, numErrors: 0 });
    const missing = await run(
      ["eval", "sums.jsonl", "--model", "tinker://none/sampler_weights/1", "--grade", "number"],
      {
        env: cleanEnv(folder),
        cwd: folder,
      },
    );
    expect(missing).toMatchObject({ code: 1, stdout: "" });
    expect(missing.stderr).toMatch(/tinker:\/\/none\/sampler_weights\/1/);
  });
});

describe.skipIf(noTerminal)(`tinkerts eval at a terminal ${noTerminal ?? ""}`, () => {
  let terminal: Terminal;
  afterEach(() => terminal.close());

  it("shows how far it is", async () => {
    server.engine.hold();
    terminal = openTerminal([...nano, "--grade", "number"], { env: server.env, cwd: folder });
    await terminal.seen(/answering {2}╌+ {2}0% {2}0 of 3/);
    server.engine.open();
    await terminal.seen(/sums: 0\.0% ± 0\.0%, 0 of 3 answers right/);
    expect(await terminal.ended).toBe(0);
  });
});
