import { describe, expect, it } from "vitest";
import { Arena, ScratchStack } from "./arena.js";

describe("the arena", () => {
  it("never hands out overlapping or unaligned blocks, and gives everything back", () => {
    let size = 0;
    const arena = new Arena((bytes) => {
      size = Math.max(size, bytes);
    }, 100);
    const live = new Map<number, number>();
    let state = 1;
    const random = (limit: number) => {
      state = (state * 48271) % 2147483647;
      return state % limit;
    };
    for (let turn = 0; turn < 3000; turn++) {
      if (live.size > 0 && random(2) === 0) {
        const offset = [...live.keys()][random(live.size)]!;
        live.delete(offset);
        arena.free(offset);
      } else {
        const bytes = 1 + random(1000);
        const offset = arena.alloc(bytes);
        expect(offset % 64).toBe(0);
        expect(offset).toBeGreaterThanOrEqual(100);
        expect(offset + bytes).toBeLessThanOrEqual(size);
        for (const [other, length] of live) {
          if (offset < other + length && other < offset + bytes)
            throw new Error(`${offset} overlaps ${other}`);
        }
        live.set(offset, bytes);
      }
    }
    for (const offset of live.keys()) arena.free(offset);
    expect(arena.allocatedBytes).toBe(0);
    expect(arena.alloc(64)).toBe(128);
    expect(() => arena.free(5)).toThrow("not an allocated block");
  });

  it("has a stack that settles into one block", () => {
    const arena = new Arena(() => {});
    const stack = new ScratchStack(arena, 1000);
    const use = () => {
      const mark = stack.mark();
      const offsets = [stack.take(700), stack.take(700), stack.take(700)];
      const inner = stack.mark();
      const first = stack.take(64);
      stack.release(inner);
      expect(stack.take(64)).toBe(first);
      stack.release(mark);
      return offsets;
    };
    use();
    const settled = use();
    const bytes = arena.allocatedBytes;
    expect(use()).toEqual(settled);
    expect(arena.allocatedBytes).toBe(bytes);
    expect(new Set(settled).size).toBe(3);
  });
});
