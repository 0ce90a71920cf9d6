import { describe, expect, it } from "vitest";
import { put, randomFloats } from "./test-support.js";
import { createWasmKernels } from "./wasm-kernels.node.js";

describe("memory of the wasm kernels", () => {
  it("grows on demand without moving what is there, and zeroes what is used again", async () => {
    const kernels = createWasmKernels({ threads: 2 });
    const small = put(kernels, randomFloats(1000, 1));
    const before = kernels.allocatedBytes;
    const large = kernels.alloc(40 << 20);
    expect(Array.from(kernels.view(small))).toEqual(Array.from(randomFloats(1000, 1)));
    const end = kernels.view(large).subarray(-4);
    expect(Array.from(end)).toEqual([0, 0, 0, 0]);
    end.fill(7);
    kernels.free(large);
    expect(kernels.allocatedBytes).toBe(before);
    const again = kernels.alloc(40 << 20);
    expect(again.offset).toBe(large.offset);
    expect(Array.from(kernels.view(again).subarray(-4))).toEqual([0, 0, 0, 0]);
    await kernels.close();
  });

  it("reaches beyond 2 GiB, where addresses no longer fit a signed 32-bit number", async () => {
    const kernels = createWasmKernels({ threads: 2 });
    // Scratch is not zeroed, so these pages are reserved but never touched.
    kernels.scratch((2 ** 31 + 2 ** 24) / 4);
    const [a, b, c] = [put(kernels, randomFloats(6, 1)), put(kernels, randomFloats(6, 2)), kernels.alloc(4)];
    expect(c.offset).toBeGreaterThan(2 ** 31);
    kernels.matmul(c, a, b, 2, 2, 3);
    const low = createWasmKernels({ threads: 1 });
    const [x, y, z] = [put(low, randomFloats(6, 1)), put(low, randomFloats(6, 2)), low.alloc(4)];
    low.matmul(z, x, y, 2, 2, 3);
    expect(Array.from(kernels.view(c))).toEqual(Array.from(low.view(z)));
    await Promise.all([kernels.close(), low.close()]);
  });

  it("says what is missing when 4 GiB are not enough", async () => {
    const kernels = createWasmKernels({ threads: 1 });
    expect(() => kernels.scratch(2 ** 30)).toThrow(
      /the engine needs \d+ MiB of memory, but WebAssembly gives/,
    );
    expect(kernels.alloc(16).length).toBe(16);
    await kernels.close();
  });

  it("gives scratch back in one piece, so that steps of the same size allocate nothing", async () => {
    const kernels = createWasmKernels({ threads: 1 });
    const step = () => {
      const mark = kernels.mark();
      const offsets = [1 << 20, 3 << 20, 1 << 19].map((length) => kernels.scratch(length).offset);
      kernels.release(mark);
      return offsets;
    };
    step();
    expect(step()).toEqual(step());
    await kernels.close();
  });

  it("closes twice without harm, and refuses a thread count it cannot make", async () => {
    const kernels = createWasmKernels({ threads: 4 });
    await kernels.close();
    await kernels.close();
    expect(() => createWasmKernels({ threads: 0 })).toThrow(
      "threads must be a whole number from 1 to 64, got 0",
    );
  });
});
