import type { BestEvaluation, RunSummary } from "../../api.js";
import { fieldOf } from "./run-fields.js";

/** Runs that belong together in the table. */
export interface RunGroup {
  readonly key: string;
  readonly title: string;
  readonly runs: readonly RunSummary[];
  /** The best of their evaluations, if all are of one metric. */
  readonly best: BestEvaluation | undefined;
}

/** Groups in the order of their first runs; runs that belong to none come last. A run with several tags stands in each. */
export function groupRuns(runs: readonly RunSummary[], by: string): readonly RunGroup[] {
  const groups = new Map<string, { title: string; runs: RunSummary[] }>();
  for (const run of runs) {
    for (const { key, title } of groupsOf(run, by)) {
      const group = groups.get(key) ?? { title, runs: [] };
      groups.set(key, group);
      group.runs.push(run);
    }
  }
  return [...groups]
    .map(([key, { title, runs: members }]) => ({ key, title, runs: members, best: bestOf(members) }))
    .sort((one, other) => Number(one.key === "") - Number(other.key === ""));
}

function groupsOf(run: RunSummary, by: string): readonly { key: string; title: string }[] {
  if (by === "sweep")
    return run.sweep === undefined
      ? [{ key: "", title: "no sweep" }]
      : [{ key: run.sweep.id, title: `sweep ${run.sweep.name}` }];
  if (by === "tag")
    return run.tags.length === 0
      ? [{ key: "", title: "no tag" }]
      : run.tags.map((tag) => ({ key: tag, title: tag }));
  const field = fieldOf(by);
  const value = field.value(run);
  return value === undefined || value === null
    ? [{ key: "", title: `no ${field.title}` }]
    : [{ key: String(value), title: `${field.title} ${field.text(value)}` }];
}

function bestOf(runs: readonly RunSummary[]): BestEvaluation | undefined {
  const known = runs.flatMap(({ best }) => best ?? []);
  const [first] = known;
  if (first === undefined || known.some(({ metric }) => metric !== first.metric)) return undefined;
  return known.reduce((best, one) => (one.value < best.value === one.isLowerBetter ? one : best));
}
