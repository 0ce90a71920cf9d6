import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import {
  choiceMatch,
  type EvaluateOptions,
  evaluate,
  exactMatch,
  type Grade,
  judge,
  numberMatch,
  taskEvaluator,
} from "../../src/cookbook/evaluation/index.js";
import { AuthenticationError, ServiceClient, ValidationError } from "../../src/index.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { sampledServerForTests } from "../cli/talking-engine.js";
import { holdTimersOf } from "../support/held-timers.js";

const { server, sampler } = await sampledServerForTests();
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "tinkerts-evaluate-"));
});
afterEach(() => {
  server.engine.open();
  rmSync(folder, { recursive: true });
});

const sum = (a: number, b: number) => ({ prompt: `What is ${a} + ${b}?`, answer: a + b });
/** One after the other, so that the scripted answers go to the tasks in order. */
const run = (options: Partial<EvaluateOptions>) =>
  evaluate({
    sampler,
    tasks: [sum(1, 1), sum(2, 2), sum(3, 3)],
    grade: numberMatch(),
    concurrency: 1,
    ...options,
  });
const lines = (name = "tasks") =>
  readFileSync(join(folder, name, "trajectories.jsonl"), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

describe("evaluate", () => {
  it("says how many answers are right, and how sure that is", async () => {
    server.engine.answers = ["It is 2.", "5", "The answer is 6"];
    const result = await run({});
    expect(result).toMatchObject({
      name: "tasks",
      score: 2 / 3,
      scoreCompleted: 2 / 3,
      numExamples: 3,
      numCorrect: 2,
      numErrors: 0,
      numTruncated: 0,
      numUngraded: 0,
      passAtK: {},
    });
    // Of 1, 0, 1: s² = 1/3, s/√3 = 1/3.
    expect(result.standardError).toBeCloseTo(1 / 3, 12);
    expect(result.examples.map(({ text, reward, logs }) => [text, reward, logs["extracted"]])).toEqual([
      ["It is 2.", 1, "2."],
      ["5", 0, "5"],
      ["The answer is 6", 1, "6"],
    ]);
    expect(server.engine.heard[0]).toBe(
      "<|im_start|>user\nWhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\n",
    );
    expect(server.engine.requests[0]).toMatchObject({ temperature: 0.6, numSamples: 1 });
  });

  it("grades with an exact answer, a choice, or your own function", async () => {
    server.engine.answers = [" Paris\n", "paris"];
    const capitals = { prompt: "Capital of France?", answer: "Paris" };
    expect((await run({ tasks: [capitals, capitals], grade: exactMatch() })).numCorrect).toBe(1);
    server.engine.answers = ["Not A. I take (B).", "The answer is (c)", "I take d"];
    const choices = [
      { prompt: "A or B?", answer: "B" },
      { prompt: "C?", answer: "c" },
      { prompt: "D?", answer: "D" },
    ];
    const chosen = await run({ tasks: choices, grade: choiceMatch() });
    // A small letter alone may be a word.
    expect(chosen.examples.map(({ reward }) => reward)).toEqual([1, 1, 0]);
    server.engine.answers = ["long", "short"];
    const grade: Grade = async ({ text, task }) => ({
      reward: text.length / (task.row["most"] as number),
      metrics: { length: text.length },
      logs: { first: text[0] },
    });
    const graded = await run({
      tasks: [
        { prompt: "?", most: 8 },
        { prompt: "!", most: 5 },
      ],
      grade,
    });
    expect(graded).toMatchObject({ score: 0.75, numCorrect: 1, metrics: { length: 4.5 } });
    expect(graded.examples[0]).toMatchObject({ reward: 0.5, logs: { first: "l" } });
  });

  it("puts a system message before tasks that have none, and passes on tools and how to sample", async () => {
    const own = [
      { role: "system", content: "Mine." },
      { role: "user", content: "?" },
    ];
    const tasks = [sum(1, 1), { messages: own, answer: "1" }];
    await run({ tasks, system: "Be brief.", temperature: 0, maxTokens: 9, seed: 7, topK: 3, topP: 0.5 });
    expect(server.engine.heard.map((text) => text.split("<|im_end|>")[0])).toEqual([
      "<|im_start|>system\nBe brief.",
      "<|im_start|>system\nMine.",
    ]);
    expect(server.engine.requests[0]).toMatchObject({
      temperature: 0,
      maxTokens: 9,
      seed: 7,
      topK: 3,
      topP: 0.5,
    });
  });

  it("computes pass@k from several answers to each task", async () => {
    server.engine.answers = ["2", "2", "0", "0", "0", "0", "0", "0"];
    const result = await run({ tasks: [sum(1, 1), sum(2, 2)], numSamples: 4 });
    expect(server.engine.requests.map(({ numSamples }) => numSamples)).toEqual([4, 4]);
    // (1 - C(2,k)/C(4,k)) / 2 for k = 1 and 4.
    expect(result.passAtK).toEqual({ 1: 0.25, 4: 0.5 });
    expect(result).toMatchObject({ numExamples: 8, numCorrect: 2, score: 0.25 });
    // Of the tasks' means, 0.5 and 0: their difference over 2.
    expect(result.standardError).toBeCloseTo(0.25, 12);
    server.engine.answers = ["2", "2", "0", "0"];
    const asked = await run({ tasks: [sum(1, 1)], numSamples: 4, passAtK: [2] });
    // 1 - C(2,2)/C(4,2) = 5/6
    expect(asked.passAtK[2]).toBeCloseTo(5 / 6, 12);
  });

  it("counts what was cut off apart, and does not grade it", async () => {
    server.engine.answers = ["2222222", "4"];
    const grade = vi.fn(numberMatch());
    const long = { prompt: "word ".repeat(600), answer: 1 };
    const result = await run({ tasks: [sum(1, 1), sum(2, 2), long], grade, maxTokens: 4 });
    expect(result).toMatchObject({
      score: 1 / 3,
      scoreCompleted: 1,
      numCorrect: 1,
      numTruncated: 2,
      numErrors: 0,
    });
    expect(grade).toHaveBeenCalledTimes(1);
    expect(result.examples.map(({ outcome }) => outcome)).toEqual(["truncated", "graded", "truncated"]);
    expect(result.examples[2]!.logs["refused"]).toMatch(/has \d+ tokens; tinkerts\/nano reads at most 512/);
    expect(result.examples.map(({ metrics }) => Object.keys(metrics))).toEqual([
      ["max_tokens_reached"],
      [],
      ["context_overflow"],
    ]);
  });

  it("counts the errors of single examples and goes on", async () => {
    server.engine.answers = ["2", "4", "6"];
    const grade: Grade = ({ text }) => {
      if (text === "2") throw new Error("cannot read");
      return text === "4" ? 3 : true;
    };
    const result = await run({ grade });
    expect(result).toMatchObject({ score: 1 / 3, scoreCompleted: 1, numErrors: 2, numCorrect: 1 });
    expect(result.examples.map(({ error }) => error)).toEqual([
      "the grader failed: cannot read",
      "the grader failed: a reward must be a number from 0 to 1, or true or false, got 3",
      undefined,
    ]);
  });

  it("gives up an example whose time is over, in sampling as in grading", async () => {
    const timers = holdTimersOf(300);
    const slow: Grade = ({ text }) => {
      if (text !== "2") return true;
      setImmediate(timers.fire);
      return new Promise(() => {});
    };
    server.engine.answers = ["2", "4"];
    const tasks = [sum(1, 1), sum(2, 2)];
    const graded = await run({ tasks, grade: slow, exampleTimeoutMs: 300, concurrency: 1 });
    expect(graded.examples.map(({ error }) => error)).toEqual([
      "the grader failed: timeout: no result after 0.3 s",
      undefined,
    ]);
    server.engine.hold();
    const sampling = run({ tasks: [sum(1, 1)], exampleTimeoutMs: 300 });
    await expect.poll(() => timers.waiting).toBe(1);
    timers.fire();
    const sampled = await sampling;
    expect(sampled).toMatchObject({ numErrors: 1, score: 0 });
    expect(sampled.examples[0]!.error).toBe("timeout: no result after 0.3 s");
  });

  it("works on several tasks at a time, and on no more", async () => {
    server.engine.hold();
    const tasks = Array.from({ length: 9 }, (_, index) => sum(index, 1));
    const result = run({ tasks, concurrency: 4 });
    await expect.poll(() => server.engine.requests.length).toBe(4);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(server.engine.requests).toHaveLength(4);
    server.engine.open();
    expect((await result).numExamples).toBe(9);
  });

  it("ends at once with what would fail for every task", async () => {
    await expect(run({ temperature: -1 })).rejects.toThrow("temperature");
    const refused: Grade = () => {
      const details = { status: 401, headers: new Headers(), body: undefined, message: "no" };
      throw new AuthenticationError(details);
    };
    await expect(run({ grade: refused })).rejects.toThrow(AuthenticationError);
    expect(server.engine.requests).toHaveLength(1);
  });

  it("names what is wrong with its arguments", async () => {
    const file = join(folder, "tasks.jsonl");
    const wrong = async (options: Partial<EvaluateOptions>, message: string | RegExp) => {
      const failure = await run(options).catch((error: unknown) => error);
      expect(failure).toBeInstanceOf(ValidationError);
      expect((failure as Error).message).toMatch(message);
    };
    await wrong({ tasks: [] }, /^There is no task\.$/);
    await wrong(
      { tasks: [sum(1, 1), { answer: "2" }] },
      /^tasks\[1\]: prompt or messages is missing, got answer/,
    );
    await wrong(
      { tasks: [{ prompt: "?" }] },
      /^tasks\[0\]: answer is missing, which the grader compares with/,
    );
    await wrong(
      { tasks: [{ prompt: "?", answer: {} as never }] },
      /^tasks\[0\]: answer must be text or a number/,
    );
    await wrong(
      { tasks: [{ messages: [{ role: "user" } as never] }] },
      /^tasks\[0\]: messages\[0\]\.content/,
    );
    await wrong(
      { tasks: [{ messages: [{ role: "assistant", content: "Hi." }], answer: 1 }] },
      /must end with what the model answers to/,
    );
    await wrong(
      {
        tasks: [
          { ...sum(1, 1), id: "a" },
          { ...sum(2, 2), id: "a" },
        ],
      },
      /tasks\[1\]: id a is that of tasks\[0\]/,
    );
    await wrong({ maxToken: 3 } as never, /did you mean maxTokens\?/);
    await wrong({ numSamples: 0 }, /^numSamples must be/);
    await wrong({ concurrency: 1.5 }, /^concurrency must be/);
    await wrong({ name: "../up" }, /^name must be/);
    await wrong({ passAtK: [2] }, /^passAtK must be a list of integers from 1 to numSamples \(1\), got 2/);
    writeFileSync(file, `${JSON.stringify(sum(1, 1))}\n\n{"prompt":"?","answer":[]}\n`);
    await wrong({ tasks: file }, /^tasks\.jsonl line 3: answer must be text or a number, got/);
    writeFileSync(file, `${JSON.stringify(sum(1, 1))}\n{"prompt":\n`);
    await expect(run({ tasks: file })).rejects.toThrow(/^tasks\.jsonl line 2 is not JSON/);
    await expect(run({ tasks: join(folder, "none.jsonl") })).rejects.toThrow(/^There is no file/);
    expect(server.engine.requests).toEqual([]);
  });

  it("keeps the same question twice apart", async () => {
    const { examples } = await run({ tasks: [sum(1, 1), sum(1, 1), { ...sum(2, 2), id: "mine" }] });
    const ids = examples.map(({ id }) => id);
    expect(ids[0]).toMatch(/^tasks_[0-9a-f]{12}$/);
    expect(ids[1]).toBe(`${ids[0]}_2`);
    expect(ids[2]).toBe("mine");
  });
});

describe("the results folder", () => {
  it("has the files and fields of the Python cookbook", async () => {
    server.engine.answers = ["<think>Hm.</think>2", "5"];
    await run({ tasks: [sum(1, 1), sum(2, 2)], folder, name: "sums" });
    const [first] = lines("sums");
    expect(first).toEqual({
      idx: 0,
      benchmark: "sums",
      example_id: expect.stringMatching(/^sums_[0-9a-f]{12}$/),
      sample: 0,
      outcome: "graded",
      turns: [
        {
          role: "user",
          content: "<|im_start|>user\nWhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\n",
          token_count: expect.any(Number),
          metadata: {},
        },
        { role: "assistant", content: "2", token_count: expect.any(Number), metadata: { thinking: "Hm." } },
      ],
      reward: 1,
      metrics: {},
      logs: { expected: "2", extracted: "2" },
      error: null,
      time_seconds: expect.any(Number),
    });
    const read = (file: string) => JSON.parse(readFileSync(join(folder, file), "utf8"));
    expect(read("sums/result.json")).toMatchObject({
      name: "sums",
      score: 0.5,
      num_examples: 2,
      num_correct: 1,
      num_errors: 0,
      num_truncated: 0,
      metrics: { standard_error: 0.5, score_completed: 0.5, num_ungraded: 0, total_turns: 2 },
      time_seconds: expect.any(Number),
      pass_at_k: {},
    });
    await run({ tasks: [sum(1, 1)], folder, name: "other", numSamples: 2 });
    expect(read("summary.json")).toEqual({
      sums: { score: 0.5, num_examples: 2, num_correct: 1 },
      other: { score: 0, num_examples: 2, num_correct: 0, pass_at_k: { 1: 0, 2: 0 } },
    });
  });

  it("goes on where an earlier call was aborted, and asks nothing twice", async () => {
    server.engine.answers = ["2", "5", "6"];
    const controller = new AbortController();
    const progress: number[] = [];
    const grade: Grade = (attempt) => {
      if (attempt.text === "6") controller.abort();
      return numberMatch()(attempt);
    };
    const options = { folder, grade };
    await expect(run({ ...options, signal: controller.signal })).rejects.toThrow(
      "The evaluation was aborted",
    );
    expect(lines()).toHaveLength(2);
    server.engine.answers = ["6"];
    const result = await run({ ...options, onProgress: ({ done }) => progress.push(done) });
    expect(server.engine.requests).toHaveLength(4);
    expect(result).toMatchObject({ numExamples: 3, numCorrect: 2, score: 2 / 3 });
    expect(progress).toEqual([2, 3]);
    // All is there: nothing is asked any more, and the result is the same.
    const again = await run(options);
    expect(server.engine.requests).toHaveLength(4);
    expect({ ...again, seconds: 0 }).toEqual({ ...result, seconds: 0 });
  });

  it("tries again what failed, and whatever a crash left unfinished", async () => {
    server.engine.answers = ["2", "2", "4", "4", "6", "6"];
    let broken = true;
    const grade: Grade = (attempt) => {
      if (broken && attempt.text === "4") throw new Error("no network");
      return numberMatch()(attempt);
    };
    expect(await run({ folder, grade, numSamples: 2 })).toMatchObject({ numErrors: 2, numCorrect: 4 });
    broken = false;
    // The crash took the second answer of the last task and half of a line.
    const file = join(folder, "tasks/trajectories.jsonl");
    const whole = readFileSync(file, "utf8").trimEnd().split("\n");
    writeFileSync(file, `${whole.slice(0, 5).join("\n")}\n${whole[5]!.slice(0, 40)}`);
    server.engine.answers = ["4", "0", "6", "6"];
    const result = await run({ folder, grade, numSamples: 2 });
    expect(server.engine.requests).toHaveLength(5);
    expect(result).toMatchObject({ numErrors: 0, numCorrect: 5, numExamples: 6 });
  });

  it("refuses other tasks and other settings, and says what is different", async () => {
    const tasks = [sum(1, 1), { ...sum(2, 2), id: "two" }];
    await run({ folder, tasks });
    const refused = async (options: Partial<EvaluateOptions>, message: string) => {
      const failure = await run({ folder, tasks, ...options }).catch((error: unknown) => error);
      expect(failure).toMatchObject({ field: "folder", message: expect.stringContaining(message) });
    };
    await refused({ temperature: 1 }, "temperature was 0.6 and is 1");
    await refused({ seed: 3 }, "seed was not given and is 3");
    await refused({ grade: exactMatch() }, 'grade was "number" and is "exact"');
    await refused({ settings: { version: 2 } }, "version was not given and is 2");
    await refused({ tasks: tasks.slice(1) }, "1 task was removed (tasks_");
    await refused({ tasks: [...tasks, sum(3, 3), sum(4, 4)] }, "2 tasks were added (tasks_");
    await refused({ tasks: [tasks[0]!, { ...sum(2, 3), id: "two" }] }, "1 task was changed (two)");
    // Nothing of this spoilt it.
    expect(await run({ folder, tasks })).toMatchObject({ numExamples: 2 });
    expect(server.engine.requests).toHaveLength(2);
  });

  it("belongs to one run at a time", async () => {
    server.engine.hold();
    const first = run({ folder });
    await expect.poll(() => server.engine.requests.length).toBe(1);
    await expect(run({ folder })).rejects.toThrow("is in use by this process");
    server.engine.open();
    await first;
  });
});

describe("a model as judge", () => {
  it("decides by its verdict; what has none is counted and not guessed", async () => {
    const tasks = [sum(1, 1), sum(2, 2), sum(3, 3)];
    server.engine.answers = [
      "two",
      "Right. [[no]] I mean [[YES]]",
      "five",
      "Wrong. [[no]]",
      "six",
      "Hm, yes.",
    ];
    const result = await run({ tasks, grade: judge({ sampler }) });
    expect(result).toMatchObject({
      score: 1 / 3,
      scoreCompleted: 1 / 2,
      numCorrect: 1,
      numErrors: 1,
      numUngraded: 1,
    });
    expect(result.examples.map(({ outcome }) => outcome)).toEqual(["graded", "graded", "ungraded"]);
    expect(result.examples[2]!.logs).toEqual({ judge: "Hm, yes." });
    const asked = server.engine.heard[1]!;
    for (const part of [
      "user: What is 1 + 1?",
      "[Reference answer]\n\n2\n",
      "[Answer]\n\ntwo\n",
      "[[yes]]",
    ]) {
      expect(asked).toContain(part);
    }
    expect(server.engine.requests[1]).toMatchObject({ temperature: 0 });
  });

  it("follows a rubric, or your own prompt and verdict", async () => {
    server.engine.answers = ["two", "[[yes]]"];
    await run({ tasks: [{ prompt: "Say a number." }], grade: judge({ sampler, rubric: "It must rhyme." }) });
    expect(server.engine.heard[1]).toContain("It must rhyme.");
    expect(server.engine.heard[1]).not.toContain("Reference");
    server.engine.answers = ["two", "Rating: 7"];
    const grade = judge({
      sampler,
      prompt: ({ text }) => `Rate ${text}`,
      readVerdict: (text) => Number(/\d+/.exec(text)?.[0]) / 10,
      chat: { maxTokens: 20, renderer: "role_colon" },
    });
    expect((await run({ tasks: [sum(1, 1)], grade })).score).toBe(0.7);
    expect(server.engine.heard[3]).toMatch(/User: Rate two\n\nAssistant:$/);
    expect(server.engine.requests[3]).toMatchObject({ maxTokens: 20 });
  });
});

describe("with the real model", () => {
  let backend: LocalBackend;
  beforeAll(async () => {
    backend = await startLocalBackend({ threads: 1, listen: false });
  });
  afterAll(() => backend.close());

  const sums = Array.from({ length: 40 }, (_, index) => sum((index * 37) % 60, (index * 53) % 40));

  it("nano adds about half of the sums right, and the same seed gives the same result", async () => {
    await using real = new ServiceClient({ ...backend });
    const nano = await real.createSamplingClient({ baseModel: "tinkerts/nano" });
    const options = { sampler: nano, tasks: sums, grade: numberMatch(), seed: 1, maxTokens: 32 };
    const result = await evaluate(options);
    expect(result.numErrors).toBe(0);
    expect(result.score).toBeGreaterThan(0.2);
    expect(result.score).toBeLessThan(0.95);
    const again = await evaluate({ ...options, concurrency: 3 });
    expect(again.examples).toEqual(result.examples);
  });

  it("is measured during training, under the names of the Python cookbook", async () => {
    await using real = new ServiceClient({ ...backend });
    const training = await real.createLoraTrainingClient({ baseModel: "tinkerts/nano", rank: 4, seed: 1 });
    const evaluator = taskEvaluator({
      name: "sums",
      tasks: sums.slice(0, 8),
      grade: numberMatch(),
      temperature: 0,
      numSamples: 2,
    });
    expect(evaluator.name).toBe("sums");
    const trained = await training.saveWeightsAndGetSamplingClient();
    const metrics = await evaluator.evaluate({ sampler: trained, training, step: 0 });
    expect(metrics).toMatchObject({ "eval/sums/num_examples": 16, "eval/sums/num_errors": 0 });
    // Likeliest tokens: both answers are the same.
    expect(metrics["eval/sums/pass@2"]).toBeCloseTo(metrics["eval/sums/score"]!, 12);
    expect(metrics["eval/sums/num_correct"]).toBe(16 * metrics["eval/sums/score"]!);
    expect(metrics["eval/sums/ac_tokens_per_turn"]).toBeGreaterThan(1);
  });
});
