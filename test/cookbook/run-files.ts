import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import type { TrainingLogger } from "../../src/cookbook/runs/index.js";
import type { LocalBackend } from "../../src/local/index.js";
import { runFolderName } from "../../src/local/store/names.js";

/** The lines of a file in a run's folder. */
export const lines = async (folder: string, file: string): Promise<Record<string, unknown>[]> =>
  (await readFile(join(folder, file), "utf8"))
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);

/** The bytes of weights and optimizer, as the backend has them on disk. */
export async function weightsAt(
  { dataDir }: Pick<LocalBackend, "dataDir">,
  path: string,
): Promise<Record<string, string>> {
  const [run, kind, name] = path.slice("tinker://".length).split("/") as [string, string, string];
  const folder = join(dataDir, "runs", runFolderName(run), "checkpoints", kind, name);
  const files = (await readdir(folder)).filter((file) => file.endsWith(".safetensors"));
  expect(files.length).toBeGreaterThan(1);
  const contents = files.map(async (file) => [file, (await readFile(join(folder, file))).toString("base64")]);
  return Object.fromEntries(await Promise.all(contents)) as Record<string, string>;
}

/** Metrics without those that no two runs have in common: times, what a repeated step used once more, and warnings, which depend on the steps that this process has seen. */
export const untimed = (metrics: readonly Record<string, unknown>[]) =>
  metrics.map((line) =>
    Object.fromEntries(
      Object.entries(line).filter(([name]) => !/^(?:time|tokens\/|cost\/|warnings\/)/.test(name)),
    ),
  );

/** Calls back when a step is logged. */
export const atStep = (wanted: number, act: () => void): TrainingLogger => ({
  config: () => {},
  metrics: (_, step) => {
    if (step === wanted) act();
  },
  close: () => {},
});
