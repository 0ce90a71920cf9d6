import { describe, expect, it } from "vitest";
import { type ItemSource, type Replay, replay } from "./replay.js";

const numbers = (length: number) => Array.from({ length }, (_, index) => index);
const open = <T>(things: ItemSource<T>, seed = 0): Replay<T> => replay(things, { seed, field: "problems" });
const ask = <T>(source: Replay<T>, indexes: readonly number[]) =>
  Promise.all(indexes.map((index) => source.at(index)));

function* counting(length = Number.POSITIVE_INFINITY): Generator<number> {
  for (let number = 0; number < length; number += 1) yield number;
}

describe("an array", () => {
  it("comes whole in each epoch, each time in another order, which the seed and the number decide", async () => {
    const source = open(numbers(10), 3);
    expect(source.length).toBe(10);
    const epochs = [
      await ask(source, numbers(10)),
      await ask(
        source,
        numbers(10).map((index) => index + 10),
      ),
    ];
    for (const epoch of epochs) expect([...epoch].sort()).toEqual(numbers(10));
    expect(epochs[0]).not.toEqual(epochs[1]);
    expect(await ask(open(numbers(10), 3), [13, 0, 7])).toEqual([
      epochs[1]![3],
      epochs[0]![0],
      epochs[0]![7],
    ]);
    expect(await ask(open(numbers(10), 4), numbers(10))).not.toEqual(epochs[0]);
  });

  it("must not be empty", () => {
    expect(() => open([])).toThrow("problems must not be empty");
  });
});

describe("a function", () => {
  it("is asked for each number, until it has no more", async () => {
    const source = open((index) => (index < 3 ? Promise.resolve(index * 2) : undefined));
    expect(await ask(source, [2, 0, 2, 3])).toEqual([4, 0, 4, undefined]);
  });
});

describe("a generator", () => {
  it("comes in its order however it is asked, remembers what it gave, and ends", async () => {
    const source = open(counting(5));
    expect(source.length).toBeUndefined();
    expect(await ask(source, [3, 0, 4, 1, 5, 3, 100])).toEqual([3, 0, 4, 1, undefined, 3, undefined]);
  });

  it("that is asynchronous is asked one after the other", async () => {
    let running = 0;
    async function* slow() {
      for (const number of counting(20)) {
        expect(running++).toBe(0);
        await new Promise((resolve) => setTimeout(resolve, 1));
        running--;
        yield number;
      }
    }
    expect(await ask(open(slow()), numbers(20))).toEqual(numbers(20));
  });

  it("remembers the last 65,536, and says what to do for older ones", async () => {
    const source = open(counting());
    expect(await source.at(65_536)).toBe(65_536);
    expect(await source.at(1)).toBe(1);
    await expect(source.at(0)).rejects.toThrow(
      "problems was asked for number 0 again after number 65536, and of a generator only the last 65536 are " +
        "remembered: give a list, or a function of the number.",
    );
    expect(await source.at(65_537)).toBe(65_537);
  });

  it("that fails is not asked again, and what it gave stays", async () => {
    let calls = 0;
    const source = open(
      (function* () {
        yield 1;
        calls += 1;
        throw new Error("no file");
      })(),
    );
    expect(await source.at(0)).toBe(1);
    await expect(source.at(1)).rejects.toThrow("problems failed at number 1: no file");
    await expect(source.at(2)).rejects.toThrow("problems failed at number 1: no file");
    expect(await source.at(0)).toBe(1);
    expect(calls).toBe(1);
  });

  it("is ended when the source is closed, and one that hangs does not hold it", async () => {
    let hasEnded = false;
    const source = open(
      (function* () {
        try {
          yield* counting();
        } finally {
          hasEnded = true;
        }
      })(),
    );
    await source.at(3);
    await source.close();
    expect(hasEnded).toBe(true);
    await expect(source.at(4)).rejects.toThrow("problems is closed.");
    const hanging = open({ [Symbol.asyncIterator]: () => ({ next: () => new Promise<never>(() => {}) }) });
    void hanging.at(0);
    await hanging.close();
  });
});

describe("what can be iterated again", () => {
  it("comes over and over in its order", async () => {
    const source = open(new Set(["a", "b", "c"]));
    expect(await ask(source, [0, 1, 2, 3, 4, 5, 6])).toEqual(["a", "b", "c", "a", "b", "c", "a"]);
  });

  it("starts again for items that lie far back", async () => {
    let passes = 0;
    const source = open({
      [Symbol.iterator]: () => {
        passes += 1;
        return counting(70_000);
      },
    });
    expect(await source.at(69_999)).toBe(69_999);
    expect(await source.at(0)).toBe(0);
    expect(await source.at(70_001)).toBe(1);
    expect(passes).toBe(3);
  });

  it("ends where it gives nothing the second time, as a stream does", async () => {
    let passes = 0;
    const source = open({ [Symbol.asyncIterator]: () => counting(passes++ === 0 ? 2 : 0) } as never);
    expect(await ask(source, [0, 1, 2, 3])).toEqual([0, 1, undefined, undefined]);
  });

  it("must not be empty", async () => {
    await expect(open(new Set()).at(0)).rejects.toThrow("problems must not be empty");
  });
});

it.each([5, null, undefined, "text"])("refuses %o", (things) => {
  expect(() => open(things as never)).toThrow(/^problems must be a list, an iterable or a function/);
});
