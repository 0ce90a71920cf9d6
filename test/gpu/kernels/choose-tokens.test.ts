import { afterAll, describe, expect, it } from "vitest";
import type { Draw, Kernels } from "../../../src/local/engine/kernels/kernels.js";
import { put, randomFloats } from "../../../src/local/engine/kernels/test-support.js";
import { uniform } from "../../../src/local/engine/philox.js";
import { createReferenceKernels } from "../../engine/reference-kernels.js";
import { openKernels } from "../gpus.js";

const kernels = await openKernels();
const reference = createReferenceKernels();
afterAll(() => kernels.close());

const free = { row: 0, temperature: 1, topK: -1, topP: 1, random: 0.5 };
const randomOf = (draw: number, stream = 0) => uniform(17, [draw, stream, 0, 0]);

/** Logits of which a few weigh most, as a model's do. */
const peaked = (length: number, seed: number) =>
  randomFloats(length, seed).map((value) => 12 * value * Math.abs(value));

async function choose(on: Kernels, logits: Float32Array, vocabSize: number, draws: readonly Draw[]) {
  const mark = on.mark();
  const [values, logSumExp] = [put(on, logits), put(on, logSumExps(logits, vocabSize))];
  const [tokens, logprobs] = [on.scratchInts(draws.length), on.scratch(draws.length)];
  on.chooseTokens({ tokens, logprobs, logits: values, logSumExp, vocabSize, draws });
  const result = { tokens: [...(await on.downloadInts(tokens))], logprobs: await on.download(logprobs) };
  for (const buffer of [values, logSumExp]) on.free(buffer);
  on.release(mark);
  return result;
}

async function top(on: Kernels, logits: Float32Array, vocabSize: number, columns: number) {
  const rows = logits.length / vocabSize;
  const [values, logSumExp] = [put(on, logits), put(on, logSumExps(logits, vocabSize))];
  const [tokens, logprobs] = [on.allocInts(rows * columns), on.alloc(rows * columns)];
  on.topTokens({ tokens, logprobs, logits: values, logSumExp, rows, vocabSize, columns });
  return { tokens: [...(await on.downloadInts(tokens))], logprobs: [...(await on.download(logprobs))] };
}

const logSumExps = (logits: Float32Array, vocabSize: number) =>
  Float32Array.from({ length: logits.length / vocabSize }, (_, row) =>
    Math.log(logits.slice(row * vocabSize, (row + 1) * vocabSize).reduce((sum, x) => sum + Math.exp(x), 0)),
  );

function distribution(row: Float32Array, temperature: number) {
  const largest = Math.max(...row);
  const weights = Array.from(row, (logit) => Math.exp((logit - largest) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

/** What top-k, then top-p leave over, by the letter. */
function limited(probabilities: number[], topK: number, topP: number): number[] {
  const order = [...probabilities.keys()].sort((a, b) => probabilities[b]! - probabilities[a]! || a - b);
  const candidates = topK > 0 ? order.slice(0, topK) : order;
  const mass = candidates.reduce((sum, token) => sum + probabilities[token]!, 0);
  const left = new Array<number>(probabilities.length).fill(0);
  let sum = 0;
  for (const token of candidates) {
    if (sum >= topP * mass && sum > 0) break;
    sum += probabilities[token]!;
    left[token] = probabilities[token]!;
  }
  return left.map((probability) => probability / sum);
}

describe("a draw without limits", () => {
  it.each([
    [1, 1],
    [7, 1],
    [1000, 0.7],
    [5003, 1.5],
  ])(
    "is the CPU's among %i tokens at temperature %d, but for what rounding moves to a neighbour",
    async (vocabSize, temperature) => {
      const rows = 3;
      const logits = peaked(rows * vocabSize, vocabSize);
      const draws = Array.from({ length: 1500 }, (_, index) => ({
        ...free,
        row: (index * 7) % rows,
        temperature,
        random: randomOf(index),
      }));
      const expected = await choose(reference, logits, vocabSize, draws);
      const actual = await choose(kernels, logits, vocabSize, draws);
      const sums = logSumExps(logits, vocabSize);
      let differences = 0;
      draws.forEach(({ row, random }, index) => {
        const token = actual.tokens[index]!;
        const logit = logits[row * vocabSize + token]!;
        expect(actual.logprobs[index]).toBe(Math.fround(logit - sums[row]!));
        if (token === expected.tokens[index]) return;
        differences += 1;
        const probabilities = distribution(logits.slice(row * vocabSize, (row + 1) * vocabSize), temperature);
        const before = probabilities.slice(0, token).reduce((sum, each) => sum + each, 0);
        expect(probabilities[token]).toBeGreaterThan(0);
        expect(random).toBeGreaterThan(before - 2e-6);
        expect(random).toBeLessThan(before + probabilities[token]! + 2e-6);
      });
      expect(differences).toBeLessThanOrEqual(0.005 * draws.length);
    },
  );

  it("is right at both ends of the random numbers, and never takes a token of no weight", async () => {
    const vocabSize = 4500;
    const logits = new Float32Array(vocabSize).fill(-1000);
    for (const token of [3, 2047, 2048, 4400]) logits[token] = 2;
    const randoms = [0, 0.2499, 0.2501, 0.4999, 0.5001, 0.7499, 0.7501, 1 - 2 ** -30];
    const { tokens } = await choose(
      kernels,
      logits,
      vocabSize,
      randoms.map((random) => ({ ...free, random })),
    );
    expect(tokens).toEqual([3, 3, 2047, 2047, 2048, 2048, 4400, 4400]);
  });
});

describe("the likeliest token", () => {
  it("is the first of equal ones, whether temperature, top-k or top-p ask for it", async () => {
    const vocabSize = 5003;
    const logits = new Float32Array(2 * vocabSize).fill(-3);
    logits.set([1.5, 1.5], 2046);
    logits.set([1.5, 9, 9], vocabSize + 4090);
    const ways = [{ temperature: 0 }, { topK: 1 }, { topP: 1e-6 }, { topK: 3, topP: 0 }];
    for (const way of ways) {
      const draws = [0, 1].map((row) => ({ ...free, ...way, row, random: 0.999 }));
      const { tokens } = await choose(kernels, logits, vocabSize, draws);
      expect(tokens, JSON.stringify(way)).toEqual([2046, 4091]);
    }
  });
});

describe("top-k and top-p", () => {
  it.each([
    [7, { topK: 3 }],
    [40, { topK: 9, topP: 0.6, temperature: 0.8 }],
    [1000, { topP: 0.95, temperature: 2 }],
    [5003, { topK: 200, topP: 0.9 }],
  ])("of %i tokens with %j follow the distribution that they leave", async (vocabSize, choice) => {
    const row = peaked(vocabSize, 3);
    const { temperature, topK, topP } = { ...free, ...choice };
    const exact = limited(distribution(row, temperature), topK, topP);
    const count = 20_000;
    const draws = Array.from({ length: count }, (_, index) => ({
      ...free,
      ...choice,
      random: randomOf(index, 1),
    }));
    const counts = new Array<number>(vocabSize).fill(0);
    for (const token of (await choose(kernels, row, vocabSize, draws)).tokens) counts[token]! += 1;
    let [deviation, cells, rare] = [0, 0, { expected: 0, seen: 0 }];
    exact.forEach((probability, token) => {
      const expected = count * probability;
      if (probability === 0) expect(counts[token], `token ${token} was left out`).toBe(0);
      else if (expected < 5) {
        rare = { expected: rare.expected + expected, seen: rare.seen + counts[token]! };
      } else {
        deviation += (counts[token]! - expected) ** 2 / expected;
        cells += 1;
      }
    });
    expect(Math.abs(rare.seen - rare.expected)).toBeLessThanOrEqual(5 * Math.sqrt(rare.expected));
    // Chi-square has the mean `cells` and the variance 2 * `cells`.
    expect(deviation).toBeLessThan(cells + 5 * Math.sqrt(2 * cells) + 5);
  });

  it("keep the first of equal tokens at the limit, with zeros of both signs among them", async () => {
    const vocabSize = 3000;
    const few = new Float32Array(vocabSize).fill(-50);
    for (const token of [5, 700, 2500, 2999]) few[token] = token % 2 ? 0 : -0;
    few[900] = 1;
    const drawn = async (choice: object, logits = few) => {
      const draws = Array.from({ length: 200 }, (_, index) => ({
        ...free,
        ...choice,
        random: randomOf(index, 2),
      }));
      const { tokens } = await choose(kernels, logits, vocabSize, draws);
      return [...new Set(tokens)].sort((a, b) => a - b);
    };
    expect(await drawn({ topK: 3 })).toEqual([5, 700, 900]);
    // e and four ones: e + 2 of them reach 0.7 of the sum.
    expect(await drawn({ topP: 0.7 })).toEqual([5, 700, 900]);
    expect(await drawn({ topK: 2, topP: 0.99 })).toEqual([5, 900]);
    expect(await drawn({ topK: 5, topP: 0.7 })).toEqual([5, 700, 900]);
    expect(await drawn({ topP: 0.999_999 })).toEqual([5, 700, 900, 2500, 2999]);
    const equal = new Float32Array(vocabSize).fill(2);
    expect(await drawn({ topK: 6, topP: 0.7 }, equal)).toEqual([0, 1, 2, 3, 4]);
    expect(await drawn({ topP: 0.001 }, equal)).toEqual([0, 1, 2]);
  });

  it("leave all of many equal tokens if top-p includes almost everything", async () => {
    const draws = Array.from({ length: 100 }, (_, index) => ({
      ...free,
      topP: 1 - 2 ** -24,
      random: randomOf(index, 5),
    }));
    const { tokens } = await choose(kernels, new Float32Array(5001), 5001, draws);
    expect(new Set(tokens).size).toBeGreaterThan(90);
  });

  it("differ from draw to draw", async () => {
    const vocabSize = 600;
    const logits = peaked(2 * vocabSize, 9);
    const draws = Array.from({ length: 64 }, (_, index) => ({
      row: index % 2,
      temperature: index % 7 === 0 ? 0 : 0.5 + (index % 3),
      topK: [-1, 4, 0, 40][index % 4]!,
      topP: [1, 0.9, 0.3][index % 3]!,
      random: randomOf(index, 3),
    }));
    const { tokens } = await choose(kernels, logits, vocabSize, draws);
    for (const [index, { row, temperature, topK, topP }] of draws.entries()) {
      const values = logits.slice(row * vocabSize, (row + 1) * vocabSize);
      const exact = limited(distribution(values, Math.max(temperature, 0.01)), temperature ? topK : 1, topP);
      expect(exact[tokens[index]!], `draw ${index}`).toBeGreaterThan(0);
    }
  });
});

describe("the likeliest tokens", () => {
  it.each([
    [1, 1, 1],
    [3, 7, 7],
    [5, 1000, 20],
    [2, 5003, 100],
    [2, 700, 300],
  ])("of %i rows of %i, %i each, come in the CPU's order", async (rows, vocabSize, columns) => {
    // Many equal ones.
    const logits = peaked(rows * vocabSize, 5).map((value) => Math.round(8 * value) / 8);
    expect(await top(kernels, logits, vocabSize, columns)).toEqual(
      await top(reference, logits, vocabSize, columns),
    );
  });
});

it("gives the same bits twice", async () => {
  const vocabSize = 2500;
  const logits = peaked(4 * vocabSize, 11);
  const draws = Array.from({ length: 60 }, (_, index) => ({
    ...free,
    row: index % 4,
    topK: index % 2 ? 30 : -1,
    topP: index % 3 ? 0.9 : 1,
    random: randomOf(index, 4),
  }));
  const first = await choose(kernels, logits, vocabSize, draws);
  expect(await choose(kernels, logits, vocabSize, draws)).toEqual(first);
  expect(new Set(first.tokens).size).toBeGreaterThan(10);
});
