import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { RunEstimate } from "../../src/cookbook/costs/index.js";
import {
  comparisons,
  conversations,
  planDpo,
  planOffPolicyDistillation,
  planOnPolicyDistillation,
  planPreferenceModel,
  planReinforcement,
  planSupervised,
  type TrainDpoOptions,
  type TrainingLogger,
  type TrainReinforcementOptions,
  type TrainSupervisedOptions,
  trainDpo,
  trainOffPolicyDistillation,
  trainPreferenceModel,
  trainReinforcement,
  trainSupervised,
} from "../../src/cookbook/index.js";
import { cases } from "../support/long.js";
import { lines } from "./run-files.js";
import { TrainingBackend } from "./training-backend.js";

const MODEL = "tinkerts/nano";
const place = await TrainingBackend.forTests("costs");
const { home } = place;

/** A number from 0 to below 1 that the seed decides. */
function randomOf(seed: number): () => number {
  let state = seed * 2654435761 + 1;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const words = ["apple", "tiger", "seven", "cloud", "paper", "stone", "green", "night"];
const sentence = (random: () => number, most: number) =>
  Array.from({ length: 1 + Math.floor(random() * most) }, () => words[Math.floor(random() * 8)]).join(" ");

/** What the server has charged for so far. */
async function charged() {
  const hour = 3_600_000;
  const now = Math.floor(Date.now() / hour) * hour;
  const { data } = await place.service.createRestClient().getBillingUsage({
    startingOn: new Date(now - 24 * hour),
    endingBefore: new Date(now + 2 * hour),
  });
  const tokens = { prefill: 0, cachedPrefill: 0, sample: 0, train: 0 };
  for (const { eventInfo } of data) {
    const count = "tokenCount" in eventInfo ? (eventInfo.tokenCount ?? 0) : 0;
    if (eventInfo.type === "training") tokens.train += count;
    if (eventInfo.type === "sampling_sample") tokens.sample += count;
    if (eventInfo.type === "sampling_prefill")
      tokens[eventInfo.cached ? "cachedPrefill" : "prefill"] += count;
  }
  return tokens;
}

type Charged = Awaited<ReturnType<typeof charged>>;

/** What the server charges for a piece of work. */
async function chargedFor<T>(work: () => Promise<T>): Promise<{ result: T; tokens: Charged }> {
  const before = await charged();
  const result = await work();
  const after = await charged();
  const kinds = Object.keys(before) as (keyof Charged)[];
  return {
    result,
    tokens: Object.fromEntries(kinds.map((kind) => [kind, after[kind] - before[kind]])) as Charged,
  };
}

/** Within 3 %; what the server had in its cache was not foreseen. */
function expectNear(estimate: RunEstimate | undefined, tokens: Charged): void {
  expect(estimate?.isExact).toBe(true);
  const { most } = estimate!.tokens;
  const near = (planned: number, found: number) => {
    expect(Math.abs(planned - found)).toBeLessThanOrEqual(0.03 * found);
  };
  near(most.train, tokens.train);
  near(most.sample, tokens.sample);
  near(most.prefill + most.cachedPrefill, tokens.prefill + tokens.cachedPrefill);
}

const common = (random: () => number) => ({
  service: place.service,
  model: MODEL,
  rank: 2,
  batchSize: 2 + Math.floor(random() * 5),
  epochs: 1 + Math.floor(random() * 3),
  ...(random() < 0.5 && { maxSteps: 1 + Math.floor(random() * 6) }),
  testSize: Math.floor(random() * 5),
  evaluateEvery: Math.floor(random() * 4),
  maxLength: 40,
  loggers: [],
});

describe("an estimate before the run", () => {
  it("is what the server then charges, for supervised training on random data", async () => {
    for (let seed = 0; seed < cases(10, 3); seed += 1) {
      const random = randomOf(seed);
      const rows = Array.from({ length: 8 + Math.floor(random() * 12) }, () => ({
        messages: [
          { role: "user", content: sentence(random, 6) },
          { role: "assistant", content: sentence(random, 12) },
        ],
      }));
      const options = { ...common(random), data: conversations(rows) };
      const { estimate, description } = await planSupervised(options);
      expect(description).toMatch(/in all +[\d.,k]+ trained tokens\ncost +nothing/);
      expectNear(estimate, (await chargedFor(() => trainSupervised(options))).tokens);
    }
  });

  it("is what the server then charges, for DPO on random data", async () => {
    for (let seed = 100; seed < 100 + cases(10, 2); seed += 1) {
      const random = randomOf(seed);
      const rows = Array.from({ length: 6 + Math.floor(random() * 8) }, (_, index) => ({
        prompt: sentence(random, 5),
        chosen: `${index} ${sentence(random, 6)}`,
        rejected: `no ${sentence(random, 6)}`,
      }));
      const options: TrainDpoOptions = { ...common(random), data: comparisons(rows) };
      const { estimate } = await planDpo(options);
      expectNear(estimate, (await chargedFor(() => trainDpo(options))).tokens);
    }
  });

  it("is what the server then charges, for a preference model and off-policy distillation", async () => {
    const random = randomOf(7);
    const pairs = Array.from({ length: 8 }, () => ({
      prompt: sentence(random, 2),
      chosen: sentence(random, 2),
      rejected: `not ${sentence(random, 2)}`,
    }));
    const small = {
      service: place.service,
      model: MODEL,
      rank: 2,
      batchSize: 4,
      evaluateEvery: 1,
      testSize: 2,
      loggers: [],
    };
    const preferences = { ...small, data: comparisons(pairs) };
    const { estimate } = await planPreferenceModel(preferences);
    expectNear(estimate, (await chargedFor(() => trainPreferenceModel(preferences))).tokens);
    const rows = pairs.map(({ prompt, chosen }) => ({
      messages: [
        { role: "user", content: prompt },
        { role: "assistant", content: chosen },
      ],
    }));
    const taught = { ...small, data: conversations(rows), teacher: MODEL, topk: 3 };
    const { estimate: planned } = await planOffPolicyDistillation(taught);
    expectNear(planned, (await chargedFor(() => trainOffPolicyDistillation(taught))).tokens);
  });

  it("is a range with what it supposes for rewards, and narrower from sampled groups", async () => {
    const problems = Array.from({ length: 12 }, (_, index) => ({ prompt: `What is ${index} + 3?` }));
    const options: TrainReinforcementOptions = {
      service: place.service,
      model: MODEL,
      problems,
      reward: ({ text }) => (/[02468]$/.test(text) ? 1 : 0),
      groupSize: 4,
      groupsPerBatch: 3,
      steps: 2,
      maxTokens: 12,
      rank: 2,
      kl: { coefficient: 0.01 },
      loggers: [],
    };
    const { estimate, description } = await planReinforcement(options);
    expect(description).toMatch(/supposed +answers of 1 to 12 tokens/);
    const sampled = await chargedFor(() => planReinforcement(options, { sampleGroups: 3 }));
    expect(sampled.tokens).toMatchObject({ train: 0 });
    expect(sampled.tokens.sample).toBeGreaterThanOrEqual(12);
    const { tokens } = await chargedFor(() => trainReinforcement(options));
    for (const kind of ["sample", "train"] as const) {
      expect(estimate!.tokens.least[kind]).toBeLessThanOrEqual(tokens[kind]);
      expect(estimate!.tokens.most[kind]).toBeGreaterThanOrEqual(tokens[kind]);
      const { least, most } = sampled.result.estimate!.tokens;
      expect(most[kind] - least[kind]).toBeLessThan(
        estimate!.tokens.most[kind] - estimate!.tokens.least[kind],
      );
      expect(tokens[kind]).toBeGreaterThan(0.5 * least[kind]);
      expect(tokens[kind]).toBeLessThan(2 * most[kind]);
    }
    const read = tokens.prefill + tokens.cachedPrefill;
    expect(estimate!.tokens.most.prefill).toBeGreaterThanOrEqual(read);
    const { least } = estimate!.tokens;
    expect(least.prefill + least.cachedPrefill).toBeLessThanOrEqual(read);
    const taught = await planOnPolicyDistillation({
      ...{ service: place.service, model: MODEL, teacher: MODEL, steps: 2, groupsPerBatch: 2, maxTokens: 10 },
      prompts: problems.map(({ prompt }) => prompt),
      loggers: [],
    });
    // Each answer is read by the teacher too.
    expect(taught.estimate!.tokens.most.prefill).toBeGreaterThan(taught.estimate!.tokens.most.sample);
    expect(taught.description).not.toContain("unequal rewards");
  });
});

/** Sums that nano answers in several ways. */
const HARD_SUMS = ["57 + 86", "68 + 75", "79 + 46", "85 + 58"].map((sum) => ({ prompt: `What is ${sum}?` }));
const isEven = ({ text }: { text: string }) => (/[02468]$/.test(text) ? 1 : 0);

const PRICES = { models: { [MODEL]: { prefill: 10, cachedPrefill: 1, sample: 30, train: 20 } } };

const ROWS = conversations(
  Array.from({ length: 40 }, (_, index) => ({
    messages: [
      { role: "user", content: `Say ${words[index % 8]}` },
      {
        role: "assistant",
        content: `${words[(index * 3) % 8]} ${words[(index * 5) % 8]}`.repeat(1 + (index % 3)),
      },
    ],
  })),
);

const supervised = (options: Partial<TrainSupervisedOptions> = {}): TrainSupervisedOptions => ({
  service: place.service,
  model: MODEL,
  data: ROWS,
  testSize: 0,
  batchSize: 4,
  rank: 2,
  save: { everySteps: 3 },
  loggers: [],
  ...options,
});

describe("the meter of a run", () => {
  it("has what the server charges in the metrics, in dollars too where prices are known", async () => {
    const folder = join(home, "meter");
    const { tokens } = await chargedFor(() =>
      trainReinforcement({
        service: place.service,
        model: MODEL,
        problems: HARD_SUMS,
        reward: isEven,
        ...{ groupSize: 4, groupsPerBatch: 2, steps: 2, maxTokens: 8, rank: 2, folder, loggers: [] },
        prices: PRICES,
      }),
    );
    const last = (await lines(folder, "metrics.jsonl")).at(-1)!;
    expect(last).toMatchObject({
      "tokens/train": tokens.train,
      "tokens/sample": tokens.sample,
      "tokens/prefill": tokens.prefill,
      "tokens/cached_prefill": tokens.cachedPrefill,
    });
    expect(tokens.cachedPrefill).toBeGreaterThan(0);
    const usd = (tokens.prefill * 10 + tokens.cachedPrefill + tokens.sample * 30 + tokens.train * 20) / 1e6;
    expect(last["cost/usd"]).toBeCloseTo(usd, 10);
    expect(JSON.parse(await readFile(join(folder, "tokens.json"), "utf8"))).toMatchObject({
      models: { [MODEL]: { train: tokens.train, sample: tokens.sample } },
    });
  });

  it("counts only the tokens of its own run, where each run has a clone of the client", async () => {
    const alone = { ...supervised(), service: place.service.clone() };
    const other = { ...supervised({ maxSteps: 3 }), service: place.service.clone() };
    const [one] = await Promise.all([trainSupervised(alone), trainSupervised(other)]);
    const { estimate } = await planSupervised(alone);
    expect(one.metrics["tokens/train"]).toBe(estimate!.tokens.most.train);
    await Promise.all([alone.service.close(), other.service.close()]);
  });
});

const notesOf = (notes: string[]): TrainingLogger => ({
  config: () => {},
  metrics: () => {},
  note: (text) => void notes.push(text),
  close: () => {},
});

describe("a budget", () => {
  it("stops a run with a checkpoint before it is passed, and a larger one continues it", async () => {
    const folder = join(home, "budget");
    const whole = (await planSupervised(supervised())).estimate!.tokens.most.train;
    const notes: string[] = [];
    const first = await chargedFor(() =>
      trainSupervised(
        supervised({ folder, budget: { tokens: Math.floor(whole / 2) }, loggers: [notesOf(notes)] }),
      ),
    );
    expect(first.result).toMatchObject({ isFinished: false, paused: { by: "budget" } });
    expect(first.result.steps).toBeGreaterThan(2);
    expect(first.tokens.train).toBeLessThanOrEqual(whole / 2);
    expect(notes.at(-1)).toMatch(
      /^Paused after \d steps, with a checkpoint: The run stops at its budget of \d+ tokens: \d+ tokens are used/,
    );
    // The same budget allows nothing more.
    const again = await chargedFor(() =>
      trainSupervised(supervised({ folder, budget: { tokens: Math.floor(whole / 2) } })),
    );
    expect(again.result).toMatchObject({ isFinished: false, steps: first.result.steps });
    expect(again.tokens.train).toBe(0);
    const rest = await chargedFor(() =>
      trainSupervised(supervised({ folder, budget: { tokens: 2 * whole } })),
    );
    expect(rest.result).toMatchObject({ isFinished: true, steps: 10 });
    expect(first.tokens.train + rest.tokens.train).toBe(whole);
    expect(rest.result.metrics["tokens/train"]).toBe(whole);
  });

  it("is kept in dollars, and needs prices for that", async () => {
    const whole = (await planSupervised(supervised({ prices: PRICES }))).estimate!.usd!.most;
    const run = await trainSupervised(supervised({ prices: PRICES, budget: { usd: whole / 3 } }));
    expect(run.paused).toMatchObject({
      by: "budget",
      reason: expect.stringMatching(/budget of \$0\.\d+: \$0\.\d+ are used/),
    });
    expect(Number(run.metrics["cost/usd"])).toBeLessThanOrEqual(whole / 3);
    const other = { ...supervised(), service: place.service.clone(), budget: { usd: 1 } };
    Object.defineProperty(other.service, "baseURL", { value: "http://elsewhere.test" });
    const unpriced = { ...PRICES.models[MODEL]!, train: -1 };
    await expect(trainSupervised({ ...other, prices: { models: { [MODEL]: unpriced } } })).rejects.toThrow(
      "prices.models[tinkerts/nano].train must be a non-negative number, got -1",
    );
    await expect(trainSupervised(supervised({ budget: { usd: 0 } }))).rejects.toThrow(
      "budget.usd must be a number above 0",
    );
    await other.service.close();
  });

  it("holds for random runs with rewards, to within a step", async () => {
    for (let seed = 0; seed < cases(10, 2); seed += 1) {
      const random = randomOf(seed + 50);
      const tokens = 400 + Math.floor(random() * 2000);
      const folder = join(home, `reward-budget-${seed}`);
      const run = (budget: number) =>
        trainReinforcement({
          ...{ service: place.service, model: MODEL, seed, folder, loggers: [], rank: 2 },
          problems: HARD_SUMS,
          reward: isEven,
          ...{ groupSize: 3, groupsPerBatch: 2, steps: 12, maxTokens: 6 + Math.floor(random() * 4) },
          mode: seed % 2 === 0 ? "synchronous" : "asynchronous",
          budget: { tokens: budget },
        });
      const spent = await chargedFor(() => run(tokens));
      const total = Object.values(spent.tokens).reduce((sum, count) => sum + count, 0);
      const steps = await lines(folder, "metrics.jsonl").catch(() => []);
      const largest = Math.max(
        0,
        ...steps.map((line, index) => usedIn(line) - (index === 0 ? 0 : usedIn(steps[index - 1]!))),
      );
      expect(spent.result.isFinished).toBe(false);
      expect(total).toBeLessThanOrEqual(tokens + largest);
    }
  });
});

function usedIn(line: Readonly<Record<string, unknown>>): number {
  return ["prefill", "cached_prefill", "sample", "train"].reduce(
    (sum, kind) => sum + Number(line[`tokens/${kind}`]),
    0,
  );
}
