import { describe, expect, it } from "vitest";
import { batches } from "./batches.js";
import { interleave } from "./interleave.js";
import { permutation } from "./permutation.js";
import { listRows, type Source } from "./rows.js";
import { defaultTestSize, split } from "./split.js";

const numbers = (length: number) => Array.from({ length }, (_, index) => index);
const sorted = (list: Iterable<number>) => [...list].sort((a, b) => a - b);

async function all<T>(source: Source<T>): Promise<readonly T[]> {
  await using rows = await source.open();
  return await rows.read(numbers(rows.length));
}

describe("a permutation", () => {
  it.each([0, 1, 2, 3, 17, 1000])("has each of %i numbers once", (length) => {
    expect(sorted(permutation(length, 7, 3))).toEqual(numbers(length));
  });

  it("is decided by seed and round, on every machine", () => {
    expect([...permutation(10, 0, 0)]).toEqual([...permutation(10, 0, 0)]);
    const others = [permutation(10, 0, 1), permutation(10, 1, 0), permutation(10, 2 ** 40, 0)];
    expect(new Set([permutation(10, 0, 0), ...others].map(String)).size).toBe(4);
    expect(String(permutation(10, 0, 0))).toBe("1,2,7,0,5,9,6,4,8,3");
  });

  it("puts each number at each place equally often", () => {
    const rounds = 6000;
    const seen = numbers(4).map(() => numbers(4).map(() => 0));
    for (let round = 0; round < rounds; round++) {
      for (const [place, number] of permutation(4, 5, round).entries()) seen[place]![number]! += 1;
    }
    for (const count of seen.flat()) expect(Math.abs(count - rounds / 4)).toBeLessThan(200);
  });
});

describe("batches", () => {
  it("have every row once in an epoch, in another order in the next, and keep the last partial one", () => {
    const { stepsPerEpoch, indices } = batches({ length: 10 }, { batchSize: 4, seed: 3 });
    expect(stepsPerEpoch).toBe(3);
    const epochs = [0, 1, 2].map((epoch) => [0, 1, 2].map((step) => indices(3 * epoch + step)));
    for (const epoch of epochs) {
      expect(epoch.map(({ length }) => length)).toEqual([4, 4, 2]);
      expect(sorted(epoch.flat())).toEqual(numbers(10));
    }
    expect(new Set(epochs.map(String)).size).toBe(3);
  });

  it("are decided by the step alone, whatever was asked before", () => {
    const straight = batches({ length: 23 }, { batchSize: 5, seed: 1 });
    const steps = numbers(20);
    const expected = steps.map((step) => straight.indices(step));
    const again = batches({ length: 23 }, { batchSize: 5, seed: 1 });
    expect(steps.toReversed().map((step) => again.indices(step))).toEqual(expected.toReversed());
    expect(batches({ length: 23 }, { batchSize: 5, seed: 2 }).indices(0)).not.toEqual(expected[0]);
  });

  it("come as they stand without shuffling", () => {
    const { indices } = batches({ length: 5 }, { batchSize: 3, shuffle: false });
    expect([0, 1, 2, 3].map(indices)).toEqual([
      [0, 1, 2],
      [3, 4],
      [0, 1, 2],
      [3, 4],
    ]);
  });

  it("of fewer rows than a batch are one step", () => {
    const { stepsPerEpoch, indices } = batches({ length: 3 }, { batchSize: 128 });
    expect(stepsPerEpoch).toBe(1);
    expect(sorted(indices(0))).toEqual([0, 1, 2]);
  });

  it.each([
    [{ batchSize: 0 }, "batchSize must be a positive integer, got 0"],
    [{ batchSize: 1.5 }, "batchSize must be a positive integer, got 1.5"],
    [{ batchSize: 1, seed: -1 }, "seed must be a non-negative integer, got -1"],
  ])("refuse %o", (options, message) => {
    expect(() => batches({ length: 3 }, options)).toThrow(message);
  });
});

describe("split", () => {
  const rows = listRows(numbers(50));

  it.each([
    [10, 10],
    [0.1, 5],
    [0, 0],
    [undefined, 5],
  ])("holds out %s of 50: %i rows, the others stay", async (testSize, expected) => {
    const { train, test } = split(rows, { testSize, seed: 4 });
    expect([train.length, test.length]).toEqual([50 - expected, expected]);
    const [learnt, held] = await Promise.all([
      train.read(numbers(train.length)),
      test.read(numbers(test.length)),
    ]);
    expect(sorted([...learnt, ...held])).toEqual(numbers(50));
    expect(learnt).toEqual(sorted(learnt));
    if (expected > 0) expect(test.place(0)).toBe(`row ${held[0]! + 1}`);
  });

  it("holds out the same rows each time, and others with another seed", async () => {
    const held = async (seed: number) =>
      String(await split(rows, { testSize: 10, seed }).test.read(numbers(10)));
    expect(await held(1)).toBe(await held(1));
    expect(await held(1)).not.toBe(await held(2));
  });

  it("takes a tenth by default, at most 100 rows, and none of a few", () => {
    expect([0, 19, 20, 29, 500, 1_000_000].map(defaultTestSize)).toEqual([0, 0, 2, 2, 50, 100]);
  });

  it.each([50, 51, 0.999, -1, 1.5, Number.NaN])("refuses %d of 50 rows", (testSize) => {
    expect(() => split(rows, { testSize })).toThrow(/^testSize must/);
  });
});

describe("interleave", () => {
  const source = (name: string, length: number): Source<string> => ({
    open: async () => listRows(numbers(length).map((index) => `${name}${index}`)),
  });

  it("has every row once without weights, each source spread over the whole", async () => {
    const mixed = await all(interleave([{ source: source("a", 6) }, { source: source("b", 3) }]));
    expect(mixed).toEqual(["a0", "b0", "a1", "a2", "b1", "a3", "a4", "b2", "a5"]);
  });

  it("comes in the shares of the weights, every row at least once and small sources again", async () => {
    const parts = [
      { source: source("a", 100), weight: 1 },
      { source: source("b", 7), weight: 3 },
    ];
    const mixed = await all(interleave(parts));
    expect(mixed).toHaveLength(400);
    expect(new Set(mixed).size).toBe(107);
    const times = numbers(7).map((index) => mixed.filter((row) => row === `b${index}`).length);
    expect(sorted(new Set(times))).toEqual([42, 43]);
    for (let start = 0; start < 400; start += 40) {
      expect(mixed.slice(start, start + 40).filter((row) => row.startsWith("a"))).toHaveLength(10);
    }
    expect(await all(interleave(parts))).toEqual(mixed);
  });

  it("reads rows in the order asked for, knows their places, and closes what it opened", async () => {
    const closed: string[] = [];
    const closing = (name: string): Source<string> => ({
      open: async () => ({
        ...listRows([`${name}0`, `${name}1`]),
        place: (index) => `${name} line ${index + 1}`,
        close: async () => void closed.push(name),
      }),
    });
    const rows = await interleave([{ source: closing("a") }, { source: closing("b") }]).open();
    expect(await rows.read([3, 0, 3])).toEqual(["b1", "a0", "b1"]);
    expect(rows.place(3)).toBe("b line 2");
    await rows.close();
    await rows.close();
    expect(closed).toEqual(["a", "b"]);
  });

  it("closes the others when one cannot be opened", async () => {
    const closed: string[] = [];
    const opened: Source<string> = {
      open: async () => ({ ...listRows(["a"]), close: async () => void closed.push("a") }),
    };
    const broken: Source<string> = { open: () => Promise.reject(new Error("gone")) };
    await expect(interleave([{ source: opened }, { source: broken }]).open()).rejects.toThrow("gone");
    expect(closed).toEqual(["a"]);
  });

  it("leaves out an empty source", async () => {
    expect(
      await all(
        interleave([
          { source: source("a", 2), weight: 1 },
          { source: source("b", 0), weight: 9 },
        ]),
      ),
    ).toEqual(["a0", "a1"]);
  });

  it.each([
    [[1, undefined], "sources[1].weight is missing: all sources have a weight, or none has"],
    [[0, 1], "sources[0].weight must be a number above 0, got 0"],
    [[1, Number.NaN], "sources[1].weight must be a number above 0, got NaN"],
  ])("refuses the weights %o", (weights, message) => {
    expect(() => interleave(weights.map((weight) => ({ source: source("a", 1), weight })))).toThrow(message);
  });

  it.each([
    ["x", 'sources must be a list, got "x"'],
    [[], "sources must be a list of at least 1 entry, got 0"],
    [[{ source: ["a.jsonl"] }], "sources[0].source must be rows, as conversations(...) reads them, got"],
    [[{ source: source("a", 1), wieght: 2 }], "unknown field sources[0].wieght; did you mean weight?"],
  ])("refuses the sources %j", (sources, message) => {
    expect(() => interleave(sources as never)).toThrow(message);
  });
});
