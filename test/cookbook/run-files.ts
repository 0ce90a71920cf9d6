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

type Metrics = readonly Record<string, unknown>[];

const without = (metrics: Metrics, names: RegExp) =>
  metrics.map((line) => Object.fromEntries(Object.entries(line).filter(([name]) => !names.test(name))));

/** Metrics without times, which no two runs have in common. */
export const untimed = (metrics: Metrics) => without(metrics, /^time/);

/** What a run had used by a line. Tokens of prompts count alike, whether the server had them in its cache or not. */
const usedBy = (line: Record<string, unknown>) => {
  const tokens = (kind: string) => Number(line[`tokens/${kind}`]);
  return [tokens("train"), tokens("sample"), tokens("prefill") + tokens("cached_prefill")];
};

/**
 * The metrics of a run that was disturbed are those of one that was not, warnings included. It has used what the other
 * has, and what it sent again in addition: by each line, or by the last one if `evenly` is false, because evaluations in
 * the background and losses of two passes send while later steps do.
 */
export function expectSameMetrics(disturbed: Metrics, whole: Metrics, { evenly = true } = {}): void {
  const spending = /^(?:time|tokens\/|cost\/)/;
  expect(without(disturbed, spending)).toEqual(without(whole, spending));
  const [used, needed] = [disturbed.map(usedBy), whole.map(usedBy)];
  const again = used.map((each, index) => each.map((count, kind) => count - needed[index]![kind]!));
  for (const each of evenly ? [used, again] : [used])
    for (const kind of [0, 1, 2]) {
      const counts = each.map((line) => line[kind]!);
      expect(counts).toEqual(counts.toSorted((one, other) => one - other));
    }
  for (const count of [...again.at(-1)!, ...(evenly ? again[0]! : [])])
    expect(count).toBeGreaterThanOrEqual(0);
}

/** Calls back when a step is logged. */
export const atStep = (wanted: number, act: () => void): TrainingLogger => ({
  config: () => {},
  metrics: (_, step) => {
    if (step === wanted) act();
  },
  close: () => {},
});
