import { useEffect, useMemo } from "preact/hooks";
import type { RunCurves, RunSummary } from "../../api.js";
import type { ViewProps } from "../app.js";
import { curveGroups, domainOf } from "../curve-data.js";
import { CurveControls } from "../curves/curve-controls.js";
import { Panel, warningsOf } from "../curves/curve-panel.js";
import { type AxisRange, type CurveView, readView, writeView } from "../curves/curve-view.js";
import { RunKeys } from "../curves/run-keys.js";
import { Texts, ValuesTable } from "../curves/values-table.js";
import { distinctNames } from "../format.js";
import { follow, loadProblem, metricsOf, POINTS, runList } from "../live.js";
import { Empty, ProblemNote } from "../parts/pieces.js";
import { Settings } from "../parts/settings.js";
import { StepTimes } from "../parts/step-times.js";
import { WarningList } from "../parts/warnings.js";
import { linkTo, replaceRoute } from "../route.js";
import { saveAs } from "../save.js";
import { ask, askJson } from "../server.js";
import { problemOf, useAsked, useStore } from "../store.js";
import { MAX_COMPARED } from "./runs.js";

/** The metrics of up to eight runs, one panel each. */
export function CurvesView({ route }: ViewProps) {
  const list = useStore(runList);
  const all = useStore(metricsOf);
  const problem = useStore(loadProblem);
  const asked = route.query.getAll("run").slice(0, MAX_COMPARED);
  const newest = list?.runs[0]?.id;
  const ids = asked.length > 0 ? asked : newest === undefined ? [] : [newest];
  const key = ids.join();
  useEffect(() => follow(ids), [key]);
  const text = route.query.toString();
  const view = useMemo(() => readView(route.query), [text]);
  const { settings, filter, zoom } = view;
  const change = (part: Partial<CurveView>) =>
    replaceRoute(linkTo("curves", { run: asked, ...writeView({ ...view, ...part }) }));
  const setZoom = (next: AxisRange | undefined) => change({ zoom: next });
  const metrics = useZoomed(ids, all, settings.axis === "step" ? zoom : undefined);
  const groups = useMemo(() => curveGroups(metrics, filter), [metrics, filter]);
  const curves = [...groups.values()].flat();
  const domain = zoom ?? domainOf(curves, settings.axis);
  if (list === undefined) return <p role="status">Loading the runs…</p>;
  const runs = ids.map((id) => list.runs.find((run) => run.id === id));
  if (ids.length === 0)
    return <Empty title="No runs yet">Curves appear here as soon as there is a run.</Empty>;
  const names = distinctNames(runs.map((run) => run?.name ?? "a run that is gone"));
  const isLoaded = ids.every((id) => all.has(id));
  const hasTimes = metrics.some((one) => one?.hasTimes);
  return (
    <>
      <RunKeys {...{ ids, runs, names, metrics }} />
      <WarningList {...{ runs, names }} />
      <CurveControls
        {...{ view, domain, hasTimes }}
        onChange={change}
        onSave={isLoaded ? () => void saveCsv(ids, runs) : undefined}
      />
      <ProblemNote text={problem} />
      {!isLoaded && problem === undefined && <p role="status">Loading…</p>}
      {isLoaded && curves.length === 0 && (
        <Empty title={filter === "" ? "No metrics yet" : "No metric of that name"}>
          {filter === "" && <p>They appear here with the first line of metrics.jsonl.</p>}
        </Empty>
      )}
      {domain !== undefined &&
        [...groups].map(([prefix, members]) => (
          <details class="group" key={prefix} open={prefix !== "time"}>
            <summary>
              <h2 class="group-title">
                {prefix || "general"} <span class="muted">{members.length}</span>
              </h2>
            </summary>
            <div class="panels">
              {members.map((curve) => (
                <Panel
                  key={curve.metric}
                  {...{ curve, names, settings, domain }}
                  warnings={warningsOf(runs, curve.metric)}
                  onZoom={setZoom}
                />
              ))}
            </div>
          </details>
        ))}
      <StepTimes {...{ metrics, names }} />
      {curves.length > 0 && <ValuesTable curves={curves} names={names} settings={settings} />}
      <Texts metrics={metrics} runs={runs} />
      <Settings {...{ ids, names }} />
    </>
  );
}

/** The runs with their metrics: of what is zoomed into, more points. */
function useZoomed(
  ids: readonly string[],
  all: ReadonlyMap<string, RunCurves>,
  zoom: AxisRange | undefined,
): readonly (RunCurves | undefined)[] {
  const live = ids.map((id) => all.get(id));
  // Only where points were left out is there more to see.
  const isThin = live.some((run) =>
    Object.values(run?.series ?? {}).some(({ means }) => means !== undefined),
  );
  const wanted = zoom !== undefined && isThin ? `from=${zoom[0]}&to=${zoom[1]}` : undefined;
  const rows = live.map((run) => run?.rows).join();
  const { answer } = useAsked(
    async (signal) => {
      if (wanted === undefined) return undefined;
      const metrics = await Promise.all(
        ids.map((id) => askJson<RunCurves>(`runs/${id}/metrics?points=${POINTS}&${wanted}`, { signal })),
      );
      return { wanted, metrics };
    },
    [ids.join(), wanted, wanted === undefined ? "" : rows],
  );
  return useMemo(
    () => (wanted !== undefined && answer?.wanted === wanted ? answer.metrics : live),
    [answer, wanted, ...live],
  );
}

async function saveCsv(ids: readonly string[], runs: readonly (RunSummary | undefined)[]): Promise<void> {
  try {
    for (const [place, id] of ids.entries()) {
      const response = await ask(`runs/${id}/metrics.csv`);
      saveAs(await response.blob(), `${runs[place]?.name ?? id}.csv`);
    }
  } catch (error) {
    loadProblem.set(problemOf(error));
  }
}
