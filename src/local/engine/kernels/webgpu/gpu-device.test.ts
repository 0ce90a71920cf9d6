import { describe, expect, it } from "vitest";
import { describeAdapter, openGpuDevice } from "./gpu-device.js";

const MATRICES = "chromium-experimental-subgroup-matrix";
const CONFIG = { componentType: "f16", resultComponentType: "f32", M: 16, N: 16, K: 16 };

function adapter({
  features = ["subgroups", "shader-f16", MATRICES],
  lanes = [32, 32],
  subgroupMatrixConfigs = [{ ...CONFIG, N: 8 }, CONFIG],
} = {}): GPUAdapter {
  const info = {
    vendor: "nvidia",
    architecture: "",
    device: "nvidia-h200",
    description: "",
    subgroupMinSize: lanes[0],
    subgroupMaxSize: lanes[1],
    subgroupMatrixConfigs,
  };
  return { info, features: new Set(features), limits: {} } as unknown as GPUAdapter;
}

describe("tensor cores of a card", () => {
  it("are those of the sizes that products are written for", () => {
    const { hasTensorCores, matrixProducts } = describeAdapter(adapter());
    expect(hasTensorCores).toBe(true);
    expect(matrixProducts).toEqual(["f16 to f32 16x8x16", "f16 to f32 16x16x16"]);
  });

  it.each([
    [{ features: ["subgroups", "shader-f16"] }, `it lacks ${MATRICES}`],
    [{ subgroupMatrixConfigs: [] }, `it lacks ${MATRICES}`],
    [{ features: ["subgroups", MATRICES] }, "it lacks shader-f16"],
    [{ lanes: [64, 64] }, "it needs subgroups of 32, not of 64"],
    [{ lanes: [8, 32] }, "it needs subgroups of 32, not of several sizes"],
    [
      { subgroupMatrixConfigs: [{ ...CONFIG, M: 8, N: 8, K: 8 }] },
      "it needs products of matrices from f16 to f32 16x16x16, and has f16 to f32 8x8x8",
    ],
  ])("are missing with %j", async (card, message) => {
    expect(describeAdapter(adapter(card)).hasTensorCores).toBe(false);
    const gpu = { requestAdapter: async () => adapter(card) } as unknown as GPU;
    await expect(openGpuDevice(gpu, { precision: "fast" })).rejects.toThrow(
      `NVIDIA H200 cannot compute with precision fast: ${message}`,
    );
  });
});
