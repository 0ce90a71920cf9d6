import type { DashboardEvent, MetricsGrowth, RunCurves, RunList, Series } from "../api.js";
import { ask, askJson, eventsOf } from "./server.js";
import { PageStore } from "./store.js";

/**
 * Points of a curve that are asked for: the least and the greatest value of each pixel of a panel. A curve that grows beyond
 * three times as many is loaded again.
 */
export const POINTS = devicePixelRatio > 1 ? 2000 : 1000;
const RETRY_MS = 1000;

/** How the stream of events stands. */
export type LiveConnection = "connecting" | "live" | "lost" | "ended";

export const runList = new PageStore<RunList | undefined>(undefined);
export const connection = new PageStore<LiveConnection>("connecting");
/** Metrics of the followed runs, as far as they are loaded. */
export const metricsOf = new PageStore<ReadonlyMap<string, RunCurves>>(new Map());
/** Why a run that is followed has no metrics. */
export const loadProblem = new PageStore<string | undefined>(undefined);

let followed: readonly string[] = [];
let stream: AbortController | undefined;

/** Opens the stream, and keeps one open as long as the page is looked at. */
export function goLive(): void {
  document.addEventListener("visibilitychange", reopen);
  reopen();
}

/** Loads the metrics of these runs, and follows them. */
export function follow(runs: readonly string[]): void {
  if (runs.join() === followed.join()) return;
  followed = runs;
  const kept = [...metricsOf.value].filter(([run]) => runs.includes(run));
  if (kept.length < metricsOf.value.size) metricsOf.set(new Map(kept));
  void loadMissing().then(reopen);
}

async function loadMissing(): Promise<void> {
  await Promise.all(followed.filter((run) => !metricsOf.value.has(run)).map(load));
}

async function load(run: string): Promise<void> {
  try {
    const metrics = await askJson<RunCurves>(`runs/${run}/metrics?points=${POINTS}`);
    loadProblem.set(undefined);
    if (followed.includes(run)) metricsOf.set(new Map(metricsOf.value).set(run, metrics));
  } catch (error) {
    loadProblem.set(error instanceof Error ? error.message : String(error));
  }
}

function reopen(): void {
  stream?.abort();
  stream = undefined;
  if (document.hidden || connection.value === "ended") return;
  stream = new AbortController();
  void listen(stream.signal);
}

async function listen(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    let isLost = true;
    try {
      await loadMissing();
      const query = new URLSearchParams();
      for (const run of followed) {
        const metrics = metricsOf.value.get(run);
        if (metrics !== undefined) query.append("run", `${run},${metrics.generation},${metrics.rows}`);
      }
      const response = await ask(`events?${query}`, { signal });
      connection.set("live");
      for await (const event of eventsOf<DashboardEvent>(response)) {
        if (signal.aborted) return;
        if (event.type === "ended") {
          connection.set("ended");
          return;
        }
        if (handle(event)) continue;
        isLost = false;
        break;
      }
    } catch {
      // The stream is opened again below.
    }
    if (signal.aborted) return;
    if (isLost) connection.set("lost");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** False if the stream must be opened again from the page's current place. */
function handle(event: Exclude<DashboardEvent, { type: "ended" }>): boolean {
  switch (event.type) {
    case "runs": {
      const known = new Map([...(runList.value?.runs ?? []), ...event.list.runs].map((run) => [run.id, run]));
      runList.set({ ...event.list, runs: event.ids.flatMap((id) => known.get(id) ?? []) });
      return !followed.some((run) => !metricsOf.value.has(run) && event.ids.includes(run));
    }
    case "stale":
      forget(event.run);
      return false;
    case "metrics":
      return grow(event.growth);
    default:
      return event satisfies never;
  }
}

function forget(run: string): void {
  const rest = new Map(metricsOf.value);
  rest.delete(run);
  metricsOf.set(rest);
}

function grow(growth: MetricsGrowth): boolean {
  const before = metricsOf.value.get(growth.run);
  if (before === undefined) return true;
  if (before.generation !== growth.generation || before.rows !== growth.from) {
    forget(growth.run);
    return false;
  }
  // A log may name a metric like something that every object has.
  const grownSeries = new Map<string, Series>(Object.entries(before.series));
  for (const [name, added] of Object.entries(growth.series)) {
    const known = grownSeries.get(name);
    const grown = known === undefined ? added : joined(known, added);
    if (grown === undefined || grown.steps.length > 3 * POINTS) {
      forget(growth.run);
      return false;
    }
    grownSeries.set(name, grown);
  }
  const series = Object.fromEntries(grownSeries);
  const hasTimes = Object.values(series).some(({ times }) => times.length > 0);
  metricsOf.set(new Map(metricsOf.value).set(growth.run, { ...before, rows: growth.rows, hasTimes, series }));
  return true;
}

/** Undefined where a run went back to an earlier step, which the server puts in order. */
function joined(known: Series, added: MetricsGrowth["series"][string]): Series | undefined {
  if (added.steps[0]! <= known.steps.at(-1)!) return undefined;
  const { means } = known;
  return {
    stats: added.stats,
    ...concatenated(known, added),
    means: means && {
      ...concatenated(means, added),
      counts: [...means.counts, ...added.steps.map(() => 1)],
    },
  };
}

function concatenated(one: Pick<Series, "steps" | "times" | "values">, other: typeof one) {
  return {
    steps: [...one.steps, ...other.steps],
    times: [...one.times, ...other.times],
    values: [...one.values, ...other.values],
  };
}
