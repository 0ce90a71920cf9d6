import type { RunSummary, SettingValue } from "../../api.js";
import { age, durationLabel, shortNumber, stepsText, wholeNumberText } from "../format.js";

/** A fact of a run that tables, filters and plots use: one of these, or the name of a setting. */
export interface RunField {
  readonly key: string;
  readonly title: string;
  value(run: RunSummary): SettingValue | undefined;
  text(value: SettingValue): string;
}

const plain = (value: SettingValue) => (typeof value === "number" ? shortNumber(value) : String(value));
/** A setting was typed by a person, in few digits. */
const asTyped = (value: SettingValue) =>
  typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);

/** Facts that every run may have. */
const FACTS: readonly RunField[] = [
  { key: "name", title: "Run", value: (run) => run.name, text: plain },
  { key: "model", title: "Model", value: (run) => run.model, text: plain },
  { key: "state", title: "State", value: (run) => run.state, text: plain },
  { key: "steps", title: "Steps", value: (run) => run.steps, text: plain },
  { key: "last", title: "Last", value: (run) => run.headline?.value, text: plain },
  { key: "best", title: "Best", value: (run) => run.best?.value, text: plain },
  {
    ...{ key: "started", title: "Started", value: (run) => run.startedAt },
    text: (value) => age(Number(value)),
  },
  {
    ...{ key: "duration", title: "Duration", value: (run) => run.seconds },
    text: (value) => durationLabel(Number(value)),
  },
  {
    ...{ key: "cost", title: "Cost", value: (run) => run.costUsd },
    text: (value) => dollars(Number(value)),
  },
  {
    ...{ key: "updated", title: "Updated", value: (run) => run.updatedAt },
    text: (value) => age(Number(value)),
  },
];

/** Settings that say how much was read, not what was chosen, and whatever else differs with every run. */
const NOT_CHOSEN = /^(?:rows|test_rows|tokens|test_tokens|log_path|folder|wandb_name|run_name)$/;

/** The fact or setting of this name. */
export function fieldOf(key: string): RunField {
  return (
    FACTS.find((field) => field.key === key) ?? {
      ...{ key, title: key, text: asTyped },
      value: ({ sweep, config }) => own(sweep?.settings, key) ?? own(config, key),
    }
  );
}

function own<T>(values: Readonly<Record<string, T>> | undefined, key: string): T | undefined {
  return values !== undefined && Object.hasOwn(values, key) ? values[key] : undefined;
}

/** A dollar amount in as many digits as it takes. */
export function dollars(value: number): string {
  if (value === 0) return "$0";
  return `$${value >= 100 ? wholeNumberText(value) : value.toFixed(value < 1 ? 4 : 2)}`;
}

/** The progress of a run in words. */
export function progressText(run: RunSummary): string {
  return run.steps === undefined ? "" : stepsText(run);
}

/** Names of all settings of these runs. */
export function settingNames(runs: readonly RunSummary[]): readonly string[] {
  const names = runs.flatMap(({ sweep, config }) => [
    ...Object.keys(sweep?.settings ?? {}),
    ...Object.keys(config),
  ]);
  return [...new Set(names)].sort((one, other) => one.localeCompare(other));
}

/** Settings that were chosen differently among these runs. */
export function chosenDifferently(runs: readonly RunSummary[]): readonly string[] {
  return settingNames(runs).filter((name) => {
    const { value } = fieldOf(name);
    return !NOT_CHOSEN.test(name) && new Set(runs.map((run) => JSON.stringify(value(run) ?? null))).size > 1;
  });
}

/** Settings that the sweeps of these runs vary. */
export function columnsOfSweeps(runs: readonly RunSummary[]): readonly string[] {
  return [...new Set(runs.flatMap(({ sweep }) => Object.keys(sweep?.settings ?? {})))];
}

/** Orders runs by a field; those without a value come last in both directions. */
export function compareBy(field: RunField, isDown: boolean) {
  return (one: RunSummary, other: RunSummary): number => {
    const [first, second] = [field.value(one) ?? undefined, field.value(other) ?? undefined];
    if (first === undefined || second === undefined)
      return Number(first === undefined) - Number(second === undefined);
    const order =
      typeof first === "number" && typeof second === "number"
        ? first - second
        : String(first).localeCompare(String(second), "en", { numeric: true });
    return isDown ? -order : order;
  };
}
