import type { RunSummary, SettingValue } from "../../api.js";
import { fieldOf } from "./run-fields.js";

const CONDITION = /^([^=<>!:]+)(!=|<=|>=|=|<|>)(.*)$/;

/**
 * Runs that fit all words of a search. A word is part of a name, model, state, tag or note; `rank=8`, `learning_rate<1e-3`
 * and `tag=good` compare a setting or a column.
 */
export function filterRuns(runs: readonly RunSummary[], search: string): readonly RunSummary[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return runs.filter((run) => words.every((word) => fits(run, word)));
}

function fits(run: RunSummary, word: string): boolean {
  const [, name, operator, wanted] = CONDITION.exec(word) ?? [];
  if (name === undefined || operator === undefined || wanted === undefined) {
    const texts = [run.name, run.model ?? "", run.state, run.note, run.sweep?.name ?? "", ...run.tags];
    return texts.join(" ").toLowerCase().includes(word);
  }
  if (name === "tag" || name === "tags") {
    const has = run.tags.some((tag) => tag.toLowerCase() === wanted);
    return operator === "!=" ? !has : has;
  }
  const settings = { ...run.config, ...run.sweep?.settings };
  const key = Object.keys(settings).find((one) => one.toLowerCase() === name) ?? name;
  return isSuch(fieldOf(key).value(run), operator, wanted);
}

function isSuch(value: SettingValue | undefined, operator: string, wanted: string): boolean {
  const [one, other] = [Number(value), Number(wanted)];
  const isNumber = typeof value === "number" && wanted !== "" && Number.isFinite(other);
  const isSame = isNumber ? one === other : String(value ?? "").toLowerCase() === wanted;
  switch (operator) {
    case "=":
      return isSame;
    case "!=":
      return !isSame;
    case "<":
      return isNumber && one < other;
    case ">":
      return isNumber && one > other;
    case "<=":
      return isNumber && one <= other;
    default:
      return isNumber && one >= other;
  }
}
