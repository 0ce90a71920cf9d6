import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  conversations,
  type ProblemAnswer,
  type TrainingLogger,
  type TrainReinforcementOptions,
  type TrainSupervisedOptions,
  trainReinforcement,
  trainSupervised,
} from "../../src/cookbook/index.js";
import { longTest } from "../support/long.js";
import { atStep, expectSameMetrics, lines } from "./run-files.js";
import { TrainingBackend } from "./training-backend.js";

const place = await TrainingBackend.forTests("warnings");
const { home } = place;

const ROWS = Array.from({ length: 24 }, (_, index) => ({
  messages: [
    { role: "user", content: `Pig Latin: ${["apple", "tiger", "stone", "cloud"][index % 4]}` },
    { role: "assistant", content: ["appleway", "igertay", "onestay", "oudclay"][(index * 7) % 4]! },
  ],
}));

const supervised = (options: Partial<TrainSupervisedOptions>) =>
  trainSupervised({
    service: place.service,
    model: "tinkerts/nano",
    data: conversations(ROWS),
    testSize: 0,
    batchSize: 4,
    epochs: 3,
    rank: 4,
    loggers: [],
    ...options,
  });

const SUMS = ["57 + 86", "68 + 75", "79 + 46", "85 + 58"].map((sum) => ({ prompt: `What is ${sum}?` }));
type Answered = ProblemAnswer;
const isEven = ({ text }: { text: string }) => (/[02468]$/.test(text) ? 1 : 0);

let calls = 0;
/** A reward that says nothing. */
const byChance = (reward: number) => {
  calls += 1;
  return calls % 2 === 0 ? reward : 0;
};

const rewarded = (options: Partial<TrainReinforcementOptions>) =>
  trainReinforcement({
    service: place.service,
    model: "tinkerts/nano",
    problems: SUMS,
    reward: isEven,
    groupSize: 4,
    groupsPerBatch: 4,
    steps: 4,
    maxTokens: 6,
    rank: 4,
    loggers: [],
    ...options,
  } as TrainReinforcementOptions);

const notesOf = (notes: string[]): TrainingLogger => ({
  config: () => {},
  metrics: () => {},
  note: (text) => void notes.push(text),
  close: () => {},
});

/** Kinds of the warnings that a run wrote down; none without the file. */
const kindsIn = async (folder: string) =>
  (await lines(folder, "warnings.jsonl").catch(() => [])).map(({ kind }) => kind);

describe("warnings of a run", () => {
  it("do not come in good runs", async () => {
    const [learning, acting] = [join(home, "good"), join(home, "good-rewards")];
    await supervised({ folder: learning });
    await rewarded({ folder: acting });
    expect([...(await kindsIn(learning)), ...(await kindsIn(acting))]).toEqual([]);
  });

  it("say that a learning rate is far off and that the loss rises, with reason and proposal, everywhere", async () => {
    const folder = join(home, "rising");
    const notes: string[] = [];
    const run = await supervised({ folder, learningRate: 0.05, loggers: [notesOf(notes)] });
    expect(run.isFinished).toBe(true);
    const warnings = await lines(folder, "warnings.jsonl");
    expect(warnings[0]).toEqual({
      step: 0,
      kind: "learning_rate",
      metric: "learning_rate",
      message: "the learning rate 0.05 is 25 times the recommended one",
      proposal: "0.002, or two or three times as much",
    });
    const rising = warnings.find(({ kind }) => kind === "loss_rising")!;
    expect(rising).toMatchObject({
      metric: "train_mean_nll",
      message: expect.stringMatching(/the loss rises/),
    });
    const metrics = await lines(folder, "metrics.jsonl");
    expect(metrics.filter((line) => "warnings/loss_rising" in line).map(({ step }) => step)).toEqual([
      rising["step"],
    ]);
    expect(notes).toContain(
      `Warning at step ${Number(rising["step"]) + 1}: ${rising["message"]}. Try ${rising["proposal"]}`,
    );
  });

  it("come once and at the same steps if the run is paused and killed", async () => {
    const settings = { learningRate: 0.05, epochs: 4, save: { everySteps: 3 } };
    const [whole, folder] = [join(home, "whole"), join(home, "disturbed")];
    await supervised({ ...settings, folder: whole });
    const rising = (await lines(whole, "warnings.jsonl")).find(({ kind }) => kind === "loss_rising")!;
    const pause = new AbortController();
    const paused = supervised({
      ...{ ...settings, folder, pauseSignal: pause.signal },
      loggers: [atStep(1, () => pause.abort())],
    });
    expect((await paused).isFinished).toBe(false);
    const abort = new AbortController();
    const warned: TrainingLogger = {
      ...notesOf([]),
      note: (text) => {
        if (text.includes("the loss rises")) abort.abort();
      },
    };
    const aborted = supervised({ ...settings, folder, signal: abort.signal, loggers: [warned] });
    await expect(aborted).rejects.toThrow("The run was aborted");
    // As a kill leaves it that comes after the warning and before the line of its step.
    const written = (await lines(folder, "metrics.jsonl")).filter(
      ({ step }) => Number(step) < Number(rising["step"]),
    );
    const text = written.map((line) => `${JSON.stringify(line)}\n`).join("");
    await writeFile(join(folder, "metrics.jsonl"), text);
    const notes: string[] = [];
    expect((await supervised({ ...settings, folder, loggers: [notesOf(notes)] })).isFinished).toBe(true);
    expect(notes.filter((text) => text.startsWith("Warning"))).toEqual([]);
    expect(await lines(folder, "warnings.jsonl")).toEqual(await lines(whole, "warnings.jsonl"));
    const metrics = await lines(folder, "metrics.jsonl");
    expectSameMetrics(metrics, await lines(whole, "metrics.jsonl"));
    const counted = metrics.flatMap((line) =>
      Object.keys(line).filter((name) => name.startsWith("warnings/")),
    );
    expect(counted).toEqual(["warnings/learning_rate", "warnings/loss_rising"]);
  });

  it("are those of the new settings, if the first ones failed before a checkpoint", async () => {
    const folder = join(home, "put-right");
    const failing = { folder, learningRate: 0.05, startFrom: "tinker://nobody/weights/nothing" };
    await expect(supervised(failing)).rejects.toThrow();
    expect(await kindsIn(folder)).toEqual(["learning_rate"]);
    await supervised({ folder });
    expect(await kindsIn(folder)).toEqual([]);
  });

  it("end a run that diverges where that is wanted, with the last good checkpoint", async () => {
    const folder = join(home, "stopped");
    const run = await supervised({
      ...{ folder, learningRate: 0.05, epochs: 20, stopOn: "divergence", save: { everySteps: 2 } },
    });
    expect(run).toMatchObject({ isFinished: false, paused: { by: "divergence" } });
    expect(run.steps).toBeLessThan(60);
    expect(run.paused!.reason).toMatch(
      /has diverged: the loss rises.*The last checkpoint before is 0000\d+: tinker:\/\/\S+\. Begin another one with a learning rate below 0\.05/,
    );
    // The same call does not go on, and another one may.
    const settings = { folder, learningRate: 0.05, epochs: 20, save: { everySteps: 2 } };
    expect(await supervised({ ...settings, stopOn: "divergence" })).toMatchObject({
      ...{ isFinished: false, steps: run.steps, paused: run.paused },
    });
    const pause = new AbortController();
    const loggers = [atStep(run.steps + 1, () => pause.abort())];
    const more = await supervised({ ...settings, loggers, pauseSignal: pause.signal });
    expect(more.steps).toBeGreaterThan(run.steps);
  });

  longTest("say that answers are cut, that rewards are alike, and that nothing can be learned", async () => {
    const cut = join(home, "cut");
    await rewarded({ folder: cut, maxTokens: 2, groupSize: 8 });
    expect(await kindsIn(cut)).toContain("answers_cut");
    const alike = join(home, "alike");
    // Of a step's sixteen groups one has different rewards.
    const problems = Array.from({ length: 16 }, (_, index) => ({ ...SUMS[0]!, answer: String(index) }));
    await rewarded({
      ...{ folder: alike, problems, groupsPerBatch: 16, groupSize: 8, steps: 3 },
      reward: ({ problem }: Answered) => ("answer" in problem && problem.answer === "3" ? byChance(1) : 0),
    });
    expect(await kindsIn(alike)).toContain("equal_rewards");
    const never = join(home, "never");
    await expect(rewarded({ folder: never, reward: () => 0 })).rejects.toThrow("Nothing was trained");
    expect(await kindsIn(never)).toEqual(["nothing_to_learn"]);
  });

  longTest(
    "say that the gradients jump, that the sampler is far away, and that the entropy is gone",
    async () => {
      const jump = join(home, "jump");
      let groups = 0;
      await rewarded({
        ...{ folder: jump, steps: 12, learningRate: 1e-6 },
        reward: ({ text }: Answered) => {
          groups += 1;
          return isEven({ text }) * (groups > 170 ? 1e5 : 1);
        },
      });
      expect(await kindsIn(jump)).toContain("gradient_norm");
      const far = join(home, "far");
      await rewarded({
        ...{ folder: far, steps: 6, mode: "asynchronous", maxStepsOffPolicy: 4, learningRate: 0.02 },
        ...{ loss: "importance_sampling", groupSize: 8 },
      });
      expect(await kindsIn(far)).toContain("kl");
      const sure = join(home, "sure");
      // The model was taught one answer, which is then rewarded by chance and never well.
      const taught = await supervised({ data: conversations(Array(24).fill(ROWS[0]!)), epochs: 4 });
      await rewarded({
        ...{ folder: sure, problems: [{ prompt: "Pig Latin: apple" }], startFrom: taught.statePath },
        ...{ groupsPerBatch: 2, learningRate: 1e-4 },
        reward: () => byChance(0.2),
      });
      expect(await kindsIn(sure)).toContain("entropy");
    },
  );
});
