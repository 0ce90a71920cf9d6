import { createHash } from "node:crypto";
import { basename, dirname } from "node:path";
import { parseJsonObject } from "../../training/json-lines.node.js";
import type { SettingValue, ShownWarning, SweepOfRun } from "../api.js";
import { readEnd } from "./file-cache.js";
import type { SweepAim } from "./run-digest.js";
import type { ShownFolder } from "./run-folders.js";
import { shownText } from "./shown-message.js";

const MAX_SETTINGS = 150;
const MAX_SETTING_LENGTH = 120;
const MAX_WARNINGS = 20;
const MAX_WARNING_LENGTH = 1000;
const WARNINGS_BYTES = 128 << 10;
const MAX_SWEEP_BYTES = 8 << 20;

type Fields = Readonly<Record<string, unknown>>;

/** Settings as a table shows them: short, and one value each. */
export function settingValues(config: unknown): Readonly<Record<string, SettingValue>> {
  if (typeof config !== "object" || config === null) return {};
  const entries = Object.entries(config).slice(0, MAX_SETTINGS);
  // A key may be named like something that every object has.
  return Object.fromEntries(
    entries.map(([name, value]) => [name.slice(0, MAX_SETTING_LENGTH), shortValue(value)]),
  );
}

function shortValue(value: unknown): SettingValue {
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  return shownText(value).slice(0, MAX_SETTING_LENGTH);
}

/** The newest lines of `warnings.jsonl`. */
export async function readWarnings(path: string): Promise<readonly ShownWarning[]> {
  const lines = (await readEnd(path, WARNINGS_BYTES)).split("\n").map(parseJsonObject);
  return lines
    .flatMap((line): ShownWarning[] => {
      const { step, kind, metric, message, proposal } = line ?? {};
      if (typeof step !== "number" || typeof message !== "string") return [];
      const text = (value: unknown) =>
        typeof value === "string" && value !== "" ? value.slice(0, MAX_WARNING_LENGTH) : undefined;
      return [
        {
          step,
          kind: text(kind) ?? "warning",
          message: message.slice(0, MAX_WARNING_LENGTH),
          metric: text(metric),
          proposal: text(proposal),
        },
      ];
    })
    .slice(-MAX_WARNINGS);
}

/** A `sweep.json`. */
export interface Sweep extends SweepAim {
  readonly name: string | undefined;
  /** Settings of each run, by the name of its folder. */
  readonly settings: ReadonlyMap<string, Readonly<Record<string, SettingValue>>>;
}

/** Reads a `sweep.json`. */
export async function readSweep(path: string): Promise<Sweep> {
  const { name, metric, direction, runs } = parseJsonObject(await readEnd(path, MAX_SWEEP_BYTES)) ?? {};
  const rows: readonly Fields[] = Array.isArray(runs)
    ? runs.filter((run) => typeof run === "object" && run)
    : [];
  return {
    name: typeof name === "string" ? name : undefined,
    metric: typeof metric === "string" ? metric : "",
    isLowerBetter: direction === "min",
    settings: new Map(rows.map(({ folder, settings }) => [String(folder), settingValues(settings)])),
  };
}

/** The folder above that of a run, if it is one of those that may be read. */
export function folderAbove({ path, root, id }: ShownFolder): ShownFolder | undefined {
  const above = dirname(path);
  return path === root ? undefined : { id, name: basename(above), path: above, root };
}

/** The part of a run in its sweep. */
export function sweepOf(run: ShownFolder, above: ShownFolder, sweep: Sweep): SweepOfRun {
  return {
    id: createHash("sha256").update(above.path).digest("base64url").slice(0, 16),
    name: sweep.name ?? above.name,
    settings: sweep.settings.get(basename(run.path)) ?? {},
  };
}
