import type { Command } from "commander";
import type { EngineDevice } from "../local/engine/engine.js";
import { DEVICE_OPTIONS, type LocalBackendOptions } from "../local/options.js";
import { message } from "../wire/index.js";
import { addFlags } from "./option-flags.js";

/** Device options of the built-in backend. */
export type DeviceOptions = Pick<LocalBackendOptions, "device" | "precision">;

/** For commands that may start the built-in backend. */
export function addDeviceOptions(command: Command): Command {
  return addFlags(command, DEVICE_OPTIONS);
}

/** A message about the chosen device, for the terminal. */
export function describeDevice({ name, note }: EngineDevice): string {
  return `Computing on ${name}${note === undefined ? "" : `; ${note}`}.`;
}

/** Whether any device option differs from its default. */
export function isDeviceGiven({ device, precision }: DeviceOptions): boolean {
  const standard = message(DEVICE_OPTIONS).check({}, "");
  return (
    (device ?? standard.device) !== standard.device ||
    (precision ?? standard.precision) !== standard.precision
  );
}
