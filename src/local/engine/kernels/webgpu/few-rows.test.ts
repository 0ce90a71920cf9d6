import { describe, expect, it } from "vitest";
import { newTokenPart } from "./attend-new-tokens.js";
import type { GpuDevice } from "./gpu-device.js";
import { MAX_LOW_VALUES } from "./low-rank.js";
import { columnFloats } from "./normed-product.js";
import { type DotSettings, dotFloats } from "./product-dots.js";
import type { OperandLayout } from "./product-operands.js";
import { planDots } from "./product-plan.js";

const KIBIBYTE = 1024;
/** A GPU with what WebGPU guarantees and nothing more: no subgroups either. */
const limits = { maxComputeWorkgroupStorageSize: 16 * KIBIBYTE, maxComputeInvocationsPerWorkgroup: 256 };
const weak = { info: { isSoftware: false }, device: { limits } } as unknown as GpuDevice;
const layout: OperandLayout = { contiguous: "k", dtype: "bf16", isVector: true };

describe("operations for few rows on a weak GPU", () => {
  it.each([1, 2, 4, 8])("products of %i rows stay within 16 KiB and 256 threads", (rows) => {
    for (const n of [256, 4096, 16_384, 151_936]) {
      for (const k of [512, 1024, 4096, 12_288]) {
        const plan = planDots(rows, n, k, weak);
        const settings: DotSettings = { ...plan, a: layout, b: layout, rows, subgroup: 1 };
        expect(plan.lanes * plan.teams).toBeLessThanOrEqual(256);
        const normed = Math.max(dotFloats(settings, true), columnFloats(settings));
        expect(4 * normed).toBeLessThanOrEqual(16 * KIBIBYTE);
        expect(4 * (dotFloats(settings) + MAX_LOW_VALUES)).toBeLessThanOrEqual(16 * KIBIBYTE);
      }
    }
  });

  it.each([
    [16, 8, 128],
    [32, 8, 128],
    [14, 2, 64],
    [8, 4, 256],
  ])("attention has a part for %i heads over %i of %i", (heads, kvHeads, headDim) => {
    const part = newTokenPart({ heads, kvHeads, headDim, scale: 1 }, weak);
    expect(part?.threads).toBeLessThanOrEqual(256);
  });

  it("attention leaves heads to others that one workgroup cannot serve together", () => {
    expect(newTokenPart({ heads: 32, kvHeads: 2, headDim: 64, scale: 1 }, weak)).toBeUndefined();
  });
});
