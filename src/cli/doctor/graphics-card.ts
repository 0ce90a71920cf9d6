import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import type { GpuInfo } from "../../local/engine/kernels/webgpu/gpu-device.js";
import type { Check } from "../commands/doctor.js";
import type { CommandContext } from "../context.js";
import { humanBytes, printJson } from "../output/index.js";

/** Result of looking for a GPU. */
type Seen = (GpuInfo & { memoryBytes: number }) | { missing: string };

/** A driver that takes longer than this is treated as broken. */
const PATIENCE_MS = 30_000;

/** Looks at the GPU from a separate process, since a broken driver may crash or hang. */
export async function findGpu(signal: AbortSignal): Promise<Check> {
  const name = "GPU";
  const [command, ...args] = [process.execPath, process.argv[1]!, "doctor", "--gpu-alone"];
  const { stdout, failure } = await new Promise<{ stdout: string; failure?: string }>((resolve) => {
    execFile(command!, args, { timeout: PATIENCE_MS, killSignal: "SIGKILL", signal }, (error, stdout) => {
      if (error === null) return resolve({ stdout });
      const seconds = PATIENCE_MS / 1000;
      const failure = error.killed
        ? `did not answer for ${seconds} s`
        : `failed (${error.signal ?? error.code})`;
      resolve({ stdout, failure });
    });
  });
  signal.throwIfAborted();
  if (failure !== undefined) {
    const detail = `the GPU driver ${failure}: install a newer one, or compute with --device cpu`;
    return { name, status: "failed", detail };
  }
  const seen = JSON.parse(stdout) as Seen;
  const facts = { webgpu: installedVersion(), ...seen };
  if ("missing" in seen) return { name, status: "skipped", detail: seen.missing, facts };
  return { name, status: seen.isSoftware ? "skipped" : "ok", detail: describe(seen), facts };
}

/** Runs in the separate process: opens the GPU and prints its properties. */
export async function printGpu(context: CommandContext): Promise<void> {
  const { inspectMachineGpu } = await import("../../local/engine/kernels/webgpu/dawn.node.js");
  const seen = await inspectMachineGpu().catch((error: Error): Seen => ({ missing: error.message }));
  printJson(context, seen);
}

function describe(card: GpuInfo & { memoryBytes: number }): string {
  if (card.isSoftware) {
    return `only ${card.name}, which computes on the CPU and is slow; it is used only with --device gpu. Is a driver missing?`;
  }
  const abilities = [
    card.subgroupSize === undefined ? "no subgroups of a fixed size" : `subgroups of ${card.subgroupSize}`,
    card.hasFloat16 ? "float16" : "no float16",
    card.hasTensorCores ? "tensor cores (--precision fast)" : "no tensor cores",
  ];
  const limits = `tensors up to ${humanBytes(Math.min(card.maxBufferBytes, card.maxBindingBytes))}`;
  const driver = card.description === "" ? "" : ` (${card.description})`;
  return `${card.name}${driver}: ${humanBytes(card.memoryBytes)} may be used, ${limits}; ${abilities.join(", ")}`;
}

function installedVersion(): string | undefined {
  try {
    const { version } = createRequire(import.meta.url)("webgpu/package.json") as { version: string };
    return version;
  } catch {
    return undefined;
  }
}
