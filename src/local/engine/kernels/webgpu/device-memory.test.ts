import { describe, expect, it } from "vitest";
import { DeviceMemory } from "./device-memory.js";

const MAX_BUFFER_BYTES = 1 << 20;

/** A card that gives small buffers only, and counts them. */
function smallBuffers(budgetBytes: number) {
  let buffers = 0;
  const device = {
    limits: { maxBufferSize: MAX_BUFFER_BYTES, maxStorageBufferBindingSize: MAX_BUFFER_BYTES },
    createBuffer() {
      buffers += 1;
      return { destroy() {} };
    },
  };
  const memory = new DeviceMemory(device as unknown as GPUDevice, budgetBytes, () => {});
  return { memory, created: () => buffers };
}

describe("scratch that is larger than a buffer can be", () => {
  const largestBytes = (MAX_BUFFER_BYTES / 3) & ~255;
  const bytes = 9 * largestBytes;

  it("holds what was reserved, wherever the buffers end, and stays for the next pass", () => {
    const { memory, created } = smallBuffers(16 * MAX_BUFFER_BYTES);
    memory.reserve(bytes, largestBytes);
    expect(memory.has(bytes)).toBe(true);
    const reserved = created();
    memory.take(256);
    for (let taken = 0; taken + largestBytes < bytes; taken += largestBytes) memory.take(largestBytes);
    expect(created()).toBe(reserved);
    memory.release(0);
    memory.dropScratch();
    expect(memory.has(bytes)).toBe(false);
  });

  it("is refused where the budget has no room for it", () => {
    const { memory } = smallBuffers(2 * MAX_BUFFER_BYTES);
    expect(() => memory.reserve(bytes, largestBytes)).toThrow(RangeError);
    expect(memory.has(bytes)).toBe(false);
  });
});

describe("scratch that was not reserved", () => {
  it("grows as far as a buffer can be, and not by more than the budget has", () => {
    const { memory, created } = smallBuffers(2.5 * MAX_BUFFER_BYTES);
    for (let taken = 0; taken < 8; taken++) memory.take(MAX_BUFFER_BYTES / 4);
    expect(created()).toBe(2);
    memory.take(MAX_BUFFER_BYTES / 2);
    expect(() => memory.take(256)).toThrow(/the GPU has 0 of 3 MiB left/);
  });
});
