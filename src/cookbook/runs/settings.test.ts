import { describe, expect, it } from "vitest";
import { recommendedBatchSize, recommendedLearningRate } from "./hyperparameters.js";
import { warmupSteps } from "./options.js";
import { savePlan, saveSettings } from "./save-plan.js";
import { scheduleMultiplier } from "./schedule.js";

/** What the Python cookbook printed. */
const PYTHON_RATES = {
  "Qwen/Qwen3-8B": 0.00047297908091376354,
  "meta-llama/Llama-3.1-8B-Instruct": 0.0002856415043086949,
  "meta-llama/Llama-3.2-1B": 0.0004908239409722158,
  "Qwen/Qwen3.5-27B:peft:262144": 0.000464869878799652,
};
const PYTHON_COSINE = [
  1.0, 0.9504844339512095, 0.8117449009293668, 0.6112604669781572, 0.38873953302184283, 0.18825509907063326,
  0.04951556604879048,
];
const PYTHON_LINEAR = [
  1.0, 0.8571428571428572, 0.7142857142857143, 0.5714285714285714, 0.4285714285714286, 0.2857142857142857,
  0.1428571428571429,
];

describe("learning rates", () => {
  it("are those of the Python cookbook where it has any, and cautious elsewhere", () => {
    for (const [model, rate] of Object.entries(PYTHON_RATES))
      expect(recommendedLearningRate(model)).toBe(rate);
    expect(recommendedLearningRate("openai/gpt-oss-20b")).toBe(1e-4);
    expect(recommendedLearningRate("me/my-qwen-of-unknown-width")).toBe(1e-4);
    expect(recommendedLearningRate("tinkerts/nano")).toBe(2e-3);
  });

  it("go down as in Python, to the last digit", () => {
    const multipliers = (schedule: "cosine" | "linear" | "constant") =>
      [...Array(7).keys()].map((step) => scheduleMultiplier(schedule, step, 7));
    expect(multipliers("cosine")).toEqual(PYTHON_COSINE);
    expect(multipliers("linear")).toEqual(PYTHON_LINEAR);
    expect(multipliers("constant")).toEqual(Array(7).fill(1));
  });

  it("climb in the steps of warm-up, and go down over the others", () => {
    const multipliers = [...Array(8).keys()].map((step) => scheduleMultiplier("linear", step, 8, 4));
    expect(multipliers).toEqual([0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25]);
    expect(warmupSteps(0.1, 50)).toBe(5);
    expect(warmupSteps(3, 50)).toBe(3);
    for (const wrong of [-1, 1.5, 50, Number.NaN])
      expect(() => warmupSteps(wrong, 50)).toThrow("warmup must be");
  });

  it("rows decide the batch: small ones for few rows, so that there are steps to take", () => {
    expect([5, 100, 400, 2559, 2560, 1e6].map(recommendedBatchSize)).toEqual([4, 4, 16, 64, 128, 128]);
  });
});

describe("saves", () => {
  const plan = (save: Parameters<typeof saveSettings>[0], seconds = 0) => {
    let nowMs = 0;
    const decide = savePlan(saveSettings(save), {
      tokensAfter: (batch) => batch * 100,
      nowMs: () => {
        nowMs += seconds * 1000;
        return nowMs;
      },
    });
    return [...Array(9).keys()].map((batch) => {
      const { sampler, rolling } = decide(batch) ?? {};
      return sampler ? "S" : rolling ? "r" : "-";
    });
  };

  it("come by steps, tokens or time, with rolling ones between them", () => {
    expect(plan({ everySteps: 4 }).join("")).toBe("r---S---S");
    expect(plan({ everySteps: 4, rollingSteps: 2 }).join("")).toBe("r-r-S-r-S");
    expect(plan({ everyTokens: 250 }).join("")).toBe("r--S--S--");
    expect(plan({ everySeconds: 30 }, 10).join("")).toBe("r--S--S--");
    expect(plan({}).join("")).toBe("r--------");
  });

  it("expire after a week by default", () => {
    expect(saveSettings().ttlSeconds).toBe(604_800);
    expect(saveSettings({ ttlSeconds: 60 }).ttlSeconds).toBe(60);
    expect(saveSettings({ ttlSeconds: null }).ttlSeconds).toBeUndefined();
  });
});
