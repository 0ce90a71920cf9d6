import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { runAddition } from "../../src/cli/quickstart/addition.js";
import type { Display } from "../../src/cli/quickstart/display.js";
import { runPigLatin } from "../../src/cli/quickstart/pig-latin.js";
import { heldOutWords, pigLatin, trainingWords } from "../../src/cli/quickstart/words.js";
import { ServiceClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { RunLog } from "../../src/training/run-log.node.js";
import { longTest } from "../support/long.js";
import { start } from "./command.js";

/** Remembers what a program shows, and the numbers in its progress lines. */
function recorder() {
  const said: string[] = [];
  const details: string[] = [];
  const display: Display = {
    say: (text = "") => said.push(text),
    progress: () => ({ update: (_, text) => details.push(text), end: () => {} }),
  };
  const numbers = (name: string) =>
    details.map((text) => Number(new RegExp(`${name} ([\\d.]+)`).exec(text)?.[1]));
  return { display, said, numbers };
}

describe("the quickstart", () => {
  let dataDir: string;
  beforeEach(() => {
    dataDir = mkdtempSync(join(tmpdir(), "tinkerts-quickstart-"));
  });
  afterEach(() => rmSync(dataDir, { recursive: true, force: true }));

  it("knows Pig Latin", () => {
    const pairs = [
      ["stick", "ick-stay"],
      ["apple", "apple-way"],
      ["quick", "ick-quay"],
      ["square", "are-squay"],
      ["year", "ear-yay"],
      ["cry", "y-cray"],
    ] as const;
    expect(pairs.map(([word]) => pigLatin(word))).toEqual(pairs.map(([, translated]) => translated));
  });

  it("tests words it does not train on", () => {
    expect(new Set(heldOutWords).size).toBe(100);
    expect(heldOutWords.filter((word) => trainingWords.includes(word))).toEqual([]);
  });

  longTest("teaches Pig Latin and leaves a checkpoint that answers", async () => {
    const { display, said, numbers } = recorder();
    const folder = join(dataDir, "run");
    const result = await runPigLatin({ dataDir, folder, steps: 40, display });
    const losses = numbers("loss");
    expect(losses).toHaveLength(40);
    expect(losses.at(-1)).toBeLessThan(losses[0]! * 0.25);
    expect(result.accuracyBefore).toBeLessThanOrEqual(0.05);
    // Less than a third of the whole training, which reaches more than 90%.
    expect(result.accuracyAfter).toBeGreaterThan(0.4);
    expect(result.tokensPerSecond).toBeGreaterThan(0);
    expect(result.trainingSeconds).toBeLessThan(result.seconds);
    expect(said.join("\n")).toContain(result.checkpoint);
    await using log = await RunLog.open(folder);
    const logged = (await log.readMetrics()).map(({ loss }) => Number(loss).toFixed(3));
    expect(logged.map(Number)).toEqual(losses);
    expect(log.checkpoints.at(-1)).toMatchObject({ final: true, samplerPath: result.checkpoint });

    await using backend = await startLocalBackend({ dataDir, listen: false });
    await using service = new ServiceClient(backend);
    const sampler = await service.createSamplingClient({ modelPath: result.checkpoint });
    const tokenizer = await loadTokenizer("tinkerts/nano");
    const prompt = tokenizer.encode("English: mask\nPig Latin:");
    const { sequences } = await sampler.sample({
      prompt,
      samplingParams: { maxTokens: 20, temperature: 0, stop: "\n" },
    });
    expect(tokenizer.decode(sequences[0]!.tokens)).toBe(" ask-may\n");
  });

  it("learns addition from rewards, and draws their curve", async () => {
    const { display, said, numbers } = recorder();
    const few = { steps: 3, problemsPerStep: 8, samplesPerProblem: 8, testProblems: 50 };
    const result = await runAddition({ dataDir, folder: join(dataDir, "run"), ...few, display });
    expect(result.accuracyBefore).toBeGreaterThan(0.5);
    expect(result.accuracyAfter).toBeGreaterThan(0.5);
    expect(numbers("reward")).toHaveLength(3);
    expect(said.join("\n")).toMatch(/100% │/);
    expect(said.join("\n")).toContain(result.checkpoint);
  });

  it("ends with 130 when it is interrupted", async () => {
    const { child, finished, seen } = start(["quickstart"], { cwd: dataDir });
    await seen(/Training on/);
    child.kill("SIGINT");
    const { code, stderr } = await finished;
    expect(stderr).toContain("Watch it, as long as it runs, at:\nhttp://127.0.0.1:");
    expect({ code, last: stderr.trimEnd().split("\n").at(-1) }).toEqual({ code: 130, last: "interrupted" });
  });
});
