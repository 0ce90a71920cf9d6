import { type Command, Option } from "commander";
import type { DeviceSetting, EngineDevice, GpuPrecision } from "../local/engine/engine.js";

/** Where the built-in backend computes. */
export interface DeviceOptions {
  readonly device: DeviceSetting;
  readonly precision: GpuPrecision;
}

const DEVICES = ["auto", "cpu", "gpu"] as const satisfies DeviceSetting[];
const PRECISIONS = ["exact", "fast"] as const satisfies GpuPrecision[];

/** For commands that may start the built-in backend. */
export function addDeviceOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--device <where>", "where the built-in backend computes: gpu needs `npm install webgpu`")
        .choices(DEVICES)
        .default("auto"),
    )
    .addOption(
      new Option("--precision <kind>", "fast: products on the tensor cores of a GPU, in float16")
        .choices(PRECISIONS)
        .default("exact"),
    );
}

/** What the person at the terminal hears of it. */
export function describeDevice({ name, note }: EngineDevice): string {
  return `Computing on ${name}${note === undefined ? "" : `; ${note}`}.`;
}

/** Whether anything but the defaults is wanted. */
export function isDeviceGiven({ device, precision }: DeviceOptions): boolean {
  return device !== "auto" || precision !== "exact";
}
