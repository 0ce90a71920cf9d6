import { describe, expect, it } from "vitest";
import type { F32 } from "../kernels.js";
import type { GpuDevice } from "./gpu-device.js";
import type { Product } from "./product-operands.js";
import { planProduct } from "./product-plan.js";
import { tileBytes, tileThreads } from "./product-tiles.js";

function planOn(kibibytes: number, m: number, n: number, k: number, transB = false) {
  const limits = {
    maxComputeWorkgroupStorageSize: kibibytes << 10,
    maxComputeInvocationsPerWorkgroup: 256,
  };
  const gpu = { info: { isSoftware: false }, device: { limits } } as unknown as GpuDevice;
  const buffer = { kind: "f32", offset: 0 } as unknown as F32;
  const product: Product = { a: buffer, b: buffer, c: buffer, m, n, k, transB };
  const plan = planProduct(product, gpu);
  if (plan.kind !== "tiles") throw new Error(`not in tiles but in ${plan.kind}`);
  return plan;
}

describe("planProduct", () => {
  it("cuts k where large tiles are few, unless the parts would not fit one binding", () => {
    const head = planOn(48, 883, 1024, 151_936);
    expect(head.rows * head.columns).toBe(128 * 128);
    expect(head.parts).toBeGreaterThan(4);
    // A tile more than a large card has processors: the more parts, the better they fill it.
    const { parts } = planOn(48, 7 * 128, 19 * 128, 200_000);
    expect(parts).toBeGreaterThan(1);
    expect(4 * parts * 7 * 128 * 19 * 128).toBeLessThanOrEqual(128 << 20);
  });

  it.each([16, 32, 48])("stays within %i KiB of workgroup memory and 256 threads", (kibibytes) => {
    for (const m of [16, 64, 300, 8192]) {
      for (const n of [96, 1024, 151_936]) {
        const plan = planOn(kibibytes, m, n, 1024, true);
        expect(tileBytes(plan)).toBeLessThanOrEqual(kibibytes << 10);
        expect(tileThreads(plan)).toBeLessThanOrEqual(256);
      }
    }
  });

  it("stages deeper tiles where a plain right side needs no turning", () => {
    expect(planOn(48, 4096, 4096, 4096)).toMatchObject({ depth: 16, buffers: 1 });
    expect(planOn(48, 4096, 4096, 4096, true)).toMatchObject({ depth: 8, buffers: 2 });
  });
});
