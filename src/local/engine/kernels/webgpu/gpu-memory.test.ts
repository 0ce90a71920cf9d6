import { describe, expect, it } from "vitest";
import { budgetOf } from "./gpu-memory.js";

const GIBIBYTE = 2 ** 30;

/** A card that gives so much memory and no more, in pieces of at most `maxBufferSize`. */
function cardWith(freeBytes: number, maxBufferSize: number) {
  let taken = 0;
  let highest = 0;
  const outOfMemory: (object | null)[] = [];
  let destroyed = () => {};
  const device = {
    lost: new Promise<void>((resolve) => {
      destroyed = resolve;
    }),
    pushErrorScope: (filter: string) => {
      if (filter === "out-of-memory") outOfMemory.push(null);
    },
    popErrorScope: async () => outOfMemory.pop() ?? null,
    createBuffer: ({ size }: { size: number }) => {
      if (size > maxBufferSize || size % 4 !== 0) throw new Error(`a buffer of ${size} bytes`);
      if (taken + size > freeBytes) outOfMemory[outOfMemory.length - 1] = { message: "out of memory" };
      else taken += size;
      highest = Math.max(highest, taken);
      return {};
    },
    destroy: () => {
      taken = 0;
      destroyed();
    },
  };
  const adapter = { limits: { maxBufferSize }, requestDevice: async () => device };
  const gpu = { requestAdapter: async () => adapter } as unknown as GPU;
  return { gpu, taken: () => taken, highest: () => highest };
}

describe("the memory of a card", () => {
  it.each([
    [139.5 * GIBIBYTE, 2 ** 40],
    [23.7 * GIBIBYTE, 2 ** 31 - 4],
    [3.9 * GIBIBYTE, 2 ** 30],
  ])("of its own is found by taking it, and given back: %d bytes in pieces of %d", async (free, piece) => {
    const card = cardWith(free, piece);
    const bytes = await budgetOf(
      card.gpu,
      { vendor: "nvidia", isSoftware: false },
      { machineBytes: 16 * GIBIBYTE },
      [],
    );
    expect(bytes).toBeLessThanOrEqual(0.9 * free);
    expect(bytes).toBeGreaterThan(0.9 * (free - 2 ** 27));
    expect(card.taken()).toBe(0);
  });

  it("is taken only as far as the models may need it", async () => {
    const card = cardWith(139 * GIBIBYTE, 2 ** 40);
    const options = { machineBytes: 16 * GIBIBYTE, modelBytes: GIBIBYTE };
    const bytes = await budgetOf(card.gpu, { vendor: "nvidia", isSoftware: false }, options, []);
    expect(bytes).toBeGreaterThanOrEqual(0.9 * 50 * GIBIBYTE);
    expect(card.highest()).toBeLessThan(55 * GIBIBYTE);
  });

  it("that it shares with programs is half of the machine's, and nothing is taken to find out", async () => {
    const card = cardWith(100 * GIBIBYTE, 2 ** 40);
    const machineBytes = 16 * GIBIBYTE;
    expect(await budgetOf(card.gpu, { vendor: "apple", isSoftware: false }, { machineBytes }, [])).toBe(
      8 * GIBIBYTE,
    );
    expect(await budgetOf(card.gpu, { vendor: "google", isSoftware: true }, { machineBytes }, [])).toBe(
      8 * GIBIBYTE,
    );
    expect(await budgetOf(card.gpu, { vendor: "nvidia", isSoftware: false }, {}, [])).toBe(2 * GIBIBYTE);
    expect(card.highest()).toBe(0);
  });
});
