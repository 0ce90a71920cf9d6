import { printPythonJson } from "../../renderers/python-json.js";
import * as f from "../../wire/fields/index.js";

/** Options of one run that differ from those of the others. */
export type SweptSettings = Readonly<Record<string, unknown>>;

/** Settings that a sweep tries. */
export interface SweptOptions {
  /** Values to try of each option; every combination is a run. */
  readonly grid?: Readonly<Record<string, readonly unknown[]>> | undefined;
  /** Settings to try, one object per run; with a grid as well, each of them with every combination. */
  readonly list?: readonly SweptSettings[] | undefined;
}

const MAX_RUNS = 1000;
const MAX_SETTINGS_CHARACTERS = 10_000;

/** Options that belong to the sweep itself, or that files cannot keep. */
const NOT_SWEPT: ReadonlySet<string> = new Set(["service", "folder", "loggers", "signal", "pauseSignal"]);

/** The settings of each run: the last option of a grid changes fastest. */
export function settingsToTry({ grid, list }: SweptOptions): readonly SweptSettings[] {
  if (grid === undefined && list === undefined)
    throw f.wrongField(
      "grid",
      "is missing, and so is list: say which settings to try, { learningRate: [1e-4, 3e-4] }",
    );
  let found: readonly SweptSettings[] = list ?? [{}];
  for (const [index, settings] of found.entries()) checkSettings(settings, `list[${index}]`);
  for (const [name, values] of Object.entries(grid ?? {})) {
    checkValues(name, values);
    if (found.length * values.length > MAX_RUNS)
      throw f.wrongField("grid", `gives more than ${MAX_RUNS} runs: leave some values out`);
    found = found.flatMap((settings) => values.map((value) => ({ ...settings, [name]: value })));
  }
  if (found.length === 0) throw f.wrongField("list", "is empty: there is nothing to try");
  if (found.length > MAX_RUNS) throw f.wrongField("list", `has ${found.length} runs, more than ${MAX_RUNS}`);
  const keys = new Set<string>();
  for (const settings of found) {
    const key = settingsKey(settings);
    if (keys.has(key)) throw f.wrongField("list", `has the same settings twice: ${JSON.stringify(settings)}`);
    keys.add(key);
  }
  return found;
}

function checkValues(name: string, values: unknown): asserts values is readonly unknown[] {
  const path = `grid.${name}`;
  if (!Array.isArray(values) || values.length === 0)
    throw f.wrongValue(path, "a list of values to try", values);
  for (const [index, value] of values.entries()) checkSetting(name, value, `${path}[${index}]`);
}

function checkSettings(settings: SweptSettings, path: string): void {
  f.checkObject(settings, path);
  for (const [name, value] of Object.entries(settings)) checkSetting(name, value, `${path}.${name}`);
}

function checkSetting(name: string, value: unknown, path: string): void {
  if (NOT_SWEPT.has(name)) throw f.wrongField(path, "cannot differ between the runs of a sweep");
  if (!isJson(value))
    throw f.wrongValue(path, "JSON (a text, a number, a list, ...), which sweep.json keeps", value);
  const { length } = JSON.stringify(value);
  if (length > MAX_SETTINGS_CHARACTERS)
    throw f.wrongField(path, `is longer than ${MAX_SETTINGS_CHARACTERS} characters`);
}

function isJson(value: unknown, depth = 0): boolean {
  if (value === null || typeof value === "string" || typeof value === "boolean") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || depth > 10) return false;
  const isPlain = Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype;
  return isPlain && Object.values(value).every((item) => isJson(item, depth + 1));
}

/** A text that is the same for the same settings, in whatever order they are. */
export function settingsKey(settings: SweptSettings): string {
  return printPythonJson(settings, { sortKeys: true });
}

/** Names of the settings that are not the same in all runs. */
export function namesThatDiffer(runs: readonly { readonly settings: SweptSettings }[]): readonly string[] {
  const names = new Set(runs.flatMap(({ settings }) => Object.keys(settings)));
  return [...names].filter((name) => {
    const values = runs.map(({ settings }) =>
      name in settings ? settingsKey({ value: settings[name] }) : "",
    );
    return new Set(values).size > 1;
  });
}

const MAX_NAME_CHARACTERS = 80;

/** The folder of a run: its number, and for people its settings. */
export function sweepRunFolder(number: number, settings: SweptSettings): string {
  const words = Object.entries(settings).map(([name, value]) => `${kebabName(name)}-${textOf(value)}`);
  const safe = words
    .join("-")
    .replaceAll(/[^\w.-]+/g, "-")
    .slice(0, MAX_NAME_CHARACTERS);
  return [String(number).padStart(3, "0"), safe.replace(/^[-.]+|[-.]+$/g, "")].filter(Boolean).join("-");
}

const kebabName = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

const textOf = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
