import { describe, expect, it } from "vitest";
import { chooseDevice, MIN_GPU_PARAMETERS } from "./choose-device.js";
import { EngineInputError } from "./engine.js";
import type { GpuDevice } from "./kernels/webgpu/gpu-device.js";

/** Cards as they would be opened, and how often that was tried. */
function world(card: "real" | "software" | string) {
  const seen = { opened: 0, destroyed: 0 };
  const openGpu = async () => {
    seen.opened += 1;
    if (card !== "real" && card !== "software") throw new Error(card);
    const device = { destroy: () => (seen.destroyed += 1) };
    return { device, info: { name: "Card", isSoftware: card === "software" } } as unknown as GpuDevice;
  };
  return { seen, openGpu };
}

const large = MIN_GPU_PARAMETERS;
const small = MIN_GPU_PARAMETERS - 1;
const MISSING = "the package webgpu is not installed: npm install webgpu";

describe("the device", () => {
  it("is a card by itself for a large model only, and no driver is touched for a small one", async () => {
    const { seen, openGpu } = world("real");
    expect(await chooseDevice({ parameters: small }, openGpu)).toEqual({});
    expect(seen.opened).toBe(0);
    expect(await chooseDevice({ parameters: large }, openGpu)).toMatchObject({
      gpu: { info: { name: "Card" } },
    });
    expect(await chooseDevice({ device: "gpu", parameters: small }, openGpu)).toHaveProperty("gpu");
    expect(await chooseDevice({ precision: "fast", parameters: small }, openGpu)).toHaveProperty("gpu");
    expect(seen).toEqual({ opened: 3, destroyed: 0 });
  });

  it("is the CPU where there is no card, and says why; where one was asked for, that is an error", async () => {
    const { openGpu } = world(MISSING);
    expect(await chooseDevice({ parameters: large }, openGpu)).toEqual({ note: MISSING });
    const asked = chooseDevice({ device: "gpu", parameters: small }, openGpu);
    await expect(asked).rejects.toThrow(EngineInputError);
    await expect(asked).rejects.toThrow(`no GPU can be used: ${MISSING}`);
    await expect(chooseDevice({ precision: "fast", parameters: large }, openGpu)).rejects.toThrow(MISSING);
  });

  it("is a program in place of a card only where it was asked for, with a warning", async () => {
    const { seen, openGpu } = world("software");
    expect(await chooseDevice({ parameters: large }, openGpu)).toEqual({
      note: "there is no GPU, only Card, which computes on the CPU and is slow",
    });
    expect(seen.destroyed).toBe(1);
    expect(await chooseDevice({ device: "gpu", parameters: small }, openGpu)).toMatchObject({
      gpu: { info: { name: "Card" } },
      note: expect.stringContaining("slowly"),
    });
  });

  it("is the CPU where that was asked for, which has one precision", async () => {
    const { seen, openGpu } = world("real");
    expect(await chooseDevice({ device: "cpu", parameters: large }, openGpu)).toEqual({});
    const fast = chooseDevice({ device: "cpu", precision: "fast", parameters: large }, openGpu);
    await expect(fast).rejects.toThrow("precision fast needs a GPU, but device is cpu");
    expect(seen.opened).toBe(0);
  });
});
