import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { consoleLogger } from "./console-logger.js";
import { combineLoggers, type TrainingLogger } from "./logger.js";
import { tensorBoardLogger } from "./tensorboard.js";

/** Two records as TensorBoard's own writer makes them: the version, and two scalars of step 300 at 1.5 s after 1970. */
const TENSORBOARD_FILE =
  "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c" +
  "3800000000000000a3797d5709000000000000f83f10ac022a2a0a150a0e747261696e5f6d65616e5f6e6c6c150000803e" +
  "0a110a0a6e756d5f746f6b656e731500009643fc7685b6";

describe("tensorBoardLogger", () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-tensorboard-"));
    vi.useFakeTimers({ now: 1500, toFake: ["Date"] });
  });
  afterEach(async () => {
    vi.useRealTimers();
    await rm(folder, { recursive: true, force: true });
  });
  const files = async () => {
    const names = await readdir(folder);
    return Promise.all(names.sort().map(async (name) => readFile(join(folder, name))));
  };

  it("writes the bytes that TensorBoard's own writer does", async () => {
    const logger = tensorBoardLogger(folder);
    await logger.metrics({ train_mean_nll: 0.25, phase: "train", num_tokens: 300 }, 300);
    await logger.close();
    expect((await readdir(folder))[0]).toMatch(/^events\.out\.tfevents\.0000000001\./);
    expect((await files())[0]?.toString("hex")).toBe(TENSORBOARD_FILE);
  });

  it("writes settings as a text, steps in order, and another file when a run goes on", async () => {
    const first = tensorBoardLogger(folder);
    void first.config({ model_name: "tinkerts/nano" });
    for (let step = 0; step < 3; step += 1) void first.metrics({ step }, step);
    await first.close();
    await new Promise((resolve) => setTimeout(resolve, 2));
    const second = tensorBoardLogger(folder);
    await second.metrics({ step: 3 }, 3);
    await second.close();
    const [one, two] = await files();
    expect(one?.includes("model_name")).toBe(true);
    expect(recordLengths(one!)).toHaveLength(5);
    expect(recordLengths(two!)).toHaveLength(2);
  });
});

function recordLengths(file: Buffer): number[] {
  const lengths: number[] = [];
  for (let at = 0; at < file.length; at += lengths.at(-1)! + 16)
    lengths.push(Number(file.readBigUInt64LE(at)));
  return lengths;
}

describe("consoleLogger", () => {
  const show = (isTTY: boolean) => {
    let text = "";
    const logger = consoleLogger({
      screen: { isTTY, columns: 60, write: (more) => (text += more) },
    });
    void logger.config({ steps: 100 });
    void logger.note?.("before");
    for (let step = 0; step < 100; step += 1) {
      const measured = step === 50 ? { "test/nll": 0.5, "time/evals": 1 } : {};
      void logger.metrics({ train_mean_nll: 1 / (step + 1), ...measured }, step);
    }
    void logger.metrics({ "test/nll": 0.25 }, 100);
    void logger.note?.("after");
    void logger.close();
    return text;
  };

  it("shows about twenty lines on a terminal, one for each evaluation, and below them one that changes", () => {
    const text = show(true);
    const stays = text.split("\n").map((line) => line.split("\x1b[K").at(-1));
    const plain = show(false).split("\n");
    expect(stays.map((line) => line?.replace(/\d+ s left/, ""))).toEqual(
      plain.map((line) => line.replace(/\d+ s left/, "")),
    );
    expect(stays[0]).toBe("before");
    expect(stays).toContainEqual(
      expect.stringMatching(/^step {2}51\/100 {2}loss 0\.0196 {2}test\/nll 0\.5000 {2}\d+ s left$/),
    );
    expect(stays.slice(-3)).toEqual(["after step 100  test/nll 0.2500", "after", ""]);
    expect(text).toContain("\r\x1b[Kstep   2/100  loss 0.5000");
  });

  it("writes about twenty plain lines elsewhere", () => {
    const lines = show(false).split("\n");
    expect(lines.length).toBeGreaterThan(20);
    expect(lines.length).toBeLessThan(28);
    expect(lines.join("")).not.toContain("\x1b");
    expect(lines.at(-4)).toMatch(/^step 100\/100/);
  });
});

describe("the meter in the console", () => {
  const lineOf = (metrics: Readonly<Record<string, number>>) => {
    let text = "";
    const logger = consoleLogger({ screen: { write: (more) => (text += more) } });
    void logger.config({ steps: 1 });
    void logger.metrics({ train_mean_nll: 1, ...metrics }, 0);
    return text.trim();
  };

  it("shows dollars, or tokens without a price, and nothing of a free run", () => {
    const tokens = { "tokens/train": 12_000, "tokens/sample": 345 };
    expect(lineOf({ ...tokens, "cost/usd": 1.234 })).toBe("step 1/1  loss 1.0000  $1.23");
    expect(lineOf(tokens)).toBe("step 1/1  loss 1.0000  12.3k tokens");
    expect(lineOf({ ...tokens, "cost/usd": 0 })).toBe("step 1/1  loss 1.0000");
  });
});

describe("consoleLogger over several runs", () => {
  it("shows each from its beginning", () => {
    let text = "";
    const logger = consoleLogger({ screen: { write: (more) => (text += more) } });
    for (let run = 0; run < 2; run += 1) {
      void logger.config({ steps: 40 });
      for (let step = 0; step < 40; step += 1) void logger.metrics({ train_mean_nll: 1 }, step);
      void logger.close();
    }
    const lines = text.trimEnd().split("\n");
    const half = lines.length / 2;
    expect(lines.slice(half).map((line) => line.slice(0, 10))).toEqual(
      lines.slice(0, half).map((line) => line.slice(0, 10)),
    );
    expect(lines.at(-1)).toContain("step 40/40");
  });
});

describe("combineLoggers", () => {
  it("tells each in order, and leaves out one that fails", async () => {
    const heard: string[] = [];
    const good: TrainingLogger = {
      config: () => {},
      metrics: async (_, step) => {
        await new Promise((resolve) => setTimeout(resolve, 3 - step));
        heard.push(`step ${step}`);
      },
      note: (text) => void heard.push(text),
      close: () => void heard.push("closed"),
    };
    const bad: TrainingLogger = {
      config: () => {},
      metrics: () => {
        throw new Error("no network");
      },
      close: () => void heard.push("never"),
    };
    const logger = combineLoggers([bad, good]);
    for (let step = 0; step < 3; step += 1) void logger.metrics({}, step);
    await logger.close();
    expect(heard).toEqual([
      "step 0",
      "A logger failed and is not called again: no network",
      "step 1",
      "step 2",
      "closed",
    ]);
  });
});
