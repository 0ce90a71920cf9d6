import { useEffect, useMemo, useState } from "preact/hooks";
import type { RunMetrics, RunSummary } from "../../api.js";
import type { ViewProps } from "../app.js";
import { type Curve, type CurveSettings, domainOf, groupsOf, notDrawn } from "../curve-data.js";
import { distinctNames, shortNumber, wholeNumber } from "../format.js";
import { follow, loadProblem, metricsOf, runList } from "../live.js";
import { Chart, cursorPlace, placeName, savePicture, shownAt } from "../parts/chart.js";
import { Empty, Problem, Swatch } from "../parts/pieces.js";
import { Settings } from "../parts/settings.js";
import { linkTo } from "../route.js";
import { saveAs } from "../save.js";
import { ask, askJson } from "../server.js";
import { problemOf, useAsked, useStore } from "../store.js";
import { MAX_COMPARED } from "./runs.js";

type Range = readonly [number, number];

/** The metrics of up to eight runs, one panel each. */
export function CurvesView({ route }: ViewProps) {
  const list = useStore(runList);
  const all = useStore(metricsOf);
  const problem = useStore(loadProblem);
  const [settings, setSettings] = useState<CurveSettings>({ axis: "step", smoothing: 0.6, isLog: false });
  const [filter, setFilter] = useState("");
  const [zoom, setZoom] = useState<Range | undefined>(undefined);
  const asked = route.query.getAll("run").slice(0, MAX_COMPARED);
  const newest = list?.runs[0]?.id;
  const ids = asked.length > 0 ? asked : newest === undefined ? [] : [newest];
  const key = ids.join();
  useEffect(() => follow(ids), [key]);
  useEffect(() => setZoom(undefined), [key, settings.axis]);
  const metrics = useZoomed(ids, all, settings.axis === "step" ? zoom : undefined);
  const groups = useMemo(() => groupsOf(metrics, filter), [metrics, filter]);
  const curves = [...groups.values()].flat();
  const domain = zoom ?? domainOf(curves, settings.axis);
  if (list === undefined) return <p role="status">Looking for runs…</p>;
  const runs = ids.map((id) => list.runs.find((run) => run.id === id));
  if (ids.length === 0)
    return <Empty title="No runs yet">Curves appear here as soon as there is a run.</Empty>;
  const names = distinctNames(runs.map((run) => run?.name ?? "a run that is gone"));
  const isLoaded = ids.every((id) => all.has(id));
  const hasTimes = metrics.some((one) => one?.hasTimes);
  return (
    <>
      <RunKeys {...{ ids, runs, names, metrics }} />
      <fieldset class="bar">
        <legend class="visually-hidden">How curves are drawn</legend>
        <label>
          Metrics
          <input
            type="search"
            placeholder="all"
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        </label>
        <label>
          Smoothing
          <input
            type="range"
            min="0"
            max="0.99"
            step="0.01"
            value={settings.smoothing}
            onInput={(event) => setSettings({ ...settings, smoothing: Number(event.currentTarget.value) })}
          />
          <output class="number">{settings.smoothing.toFixed(2)}</output>
        </label>
        <label>
          Axis
          <select
            value={settings.axis}
            onChange={(event) =>
              setSettings({ ...settings, axis: event.currentTarget.value as CurveSettings["axis"] })
            }
          >
            <option value="step">steps</option>
            <option value="time" disabled={!hasTimes}>
              {hasTimes ? "time" : "time (the log has none)"}
            </option>
          </select>
        </label>
        <label>
          <input
            type="checkbox"
            checked={settings.isLog}
            onChange={(event) => setSettings({ ...settings, isLog: event.currentTarget.checked })}
          />
          Logarithmic
        </label>
        {domain !== undefined && (
          <ZoomFields domain={domain} isZoomed={zoom !== undefined} settings={settings} onZoom={setZoom} />
        )}
        <button type="button" class="end" onClick={() => void saveCsv(ids, runs)} disabled={!isLoaded}>
          Save as CSV
        </button>
      </fieldset>
      <Problem text={problem} />
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
                <Panel key={curve.metric} {...{ curve, settings, domain }} onZoom={setZoom} />
              ))}
            </div>
          </details>
        ))}
      {curves.length > 0 && <ValuesTable curves={curves} names={names} settings={settings} />}
      <Texts metrics={metrics} runs={runs} />
      <Settings {...{ ids, names }} />
    </>
  );
}

/** The runs with their metrics: of what is zoomed into, more points. */
function useZoomed(
  ids: readonly string[],
  all: ReadonlyMap<string, RunMetrics>,
  zoom: Range | undefined,
): readonly (RunMetrics | undefined)[] {
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
        ids.map((id) => askJson<RunMetrics>(`runs/${id}/metrics?points=2000&${wanted}`, { signal })),
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

function RunKeys({
  ids,
  runs,
  names,
  metrics,
}: {
  readonly ids: readonly string[];
  readonly runs: readonly (RunSummary | undefined)[];
  readonly names: readonly string[];
  readonly metrics: readonly (RunMetrics | undefined)[];
}) {
  return (
    <ul class="run-keys" aria-label="Runs">
      {ids.map((id, place) => {
        const run = runs[place];
        const { badLines: bad = 0, leftOut = 0 } = metrics[place] ?? {};
        return (
          <li key={id}>
            <Swatch place={place} />
            <strong title={run?.folder}>{names[place]}</strong>
            {run && <span class={`state ${run.state}`}>{run.state}</span>}
            {run?.model && <span class="muted">{run.model}</span>}
            {run?.step !== undefined && <span class="muted">step {wholeNumber(run.step)}</span>}
            {leftOut > 0 && <span class="tag">more metrics than are kept</span>}
            {bad > 0 && <span class="tag">{wholeNumber(bad)} unreadable lines</span>}
            {ids.length > 1 && (
              <a
                href={linkTo("curves", { run: ids.filter((other) => other !== id) })}
                aria-label={`Leave out ${names[place]}`}
              >
                leave out
              </a>
            )}
          </li>
        );
      })}
    </ul>
  );
}

function ZoomFields({
  domain,
  isZoomed,
  settings,
  onZoom,
}: {
  readonly domain: Range;
  readonly isZoomed: boolean;
  readonly settings: CurveSettings;
  readonly onZoom: (range: Range | undefined) => void;
}) {
  const set = (from: number, to: number) => {
    if (from < to) onZoom([from, to]);
  };
  const [from, to] = domain.map((value) => Math.round(value * 100) / 100) as [number, number];
  const unit = settings.axis === "time" ? "s" : "";
  return (
    <span class="bar">
      <label>
        From
        <input
          type="number"
          class="place"
          value={from}
          onChange={(event) => set(Number(event.currentTarget.value), domain[1])}
        />
      </label>
      <label>
        to
        <input
          type="number"
          class="place"
          value={to}
          onChange={(event) => set(domain[0], Number(event.currentTarget.value))}
        />
        {unit}
      </label>
      {isZoomed && (
        <button type="button" onClick={() => onZoom(undefined)}>
          Show all
        </button>
      )}
    </span>
  );
}

function Panel({
  curve,
  settings,
  domain,
  onZoom,
}: {
  readonly curve: Curve;
  readonly settings: CurveSettings;
  readonly domain: Range;
  readonly onZoom: (range: Range | undefined) => void;
}) {
  const { metric, series } = curve;
  const hidden = series.reduce(
    (sum, one) => sum + (one === undefined ? 0 : notDrawn(one, settings.isLog)),
    0,
  );
  const first = series.find((one) => one?.stats.firstNotFiniteStep !== undefined)?.stats.firstNotFiniteStep;
  return (
    <section class="card panel" aria-label={metric}>
      <div class="panel-head">
        <h3>{metric}</h3>
        <button
          type="button"
          class="quiet small"
          aria-label={`Save ${metric} as PNG`}
          title="Save as PNG"
          onClick={(event) => void savePicture(event.currentTarget.closest("section")!, metric)}
        >
          ↓ PNG
        </button>
      </div>
      <Chart {...{ curve, settings, domain, onZoom }} />
      <PanelValues curve={curve} settings={settings} />
      {hidden > 0 && (
        <p class="note warn">
          {wholeNumber(hidden)} {hidden === 1 ? "value is" : "values are"} not drawn
          {first !== undefined && `: not a number, first at step ${wholeNumber(first)}`}
        </p>
      )}
    </section>
  );
}

function PanelValues({ curve, settings }: { readonly curve: Curve; readonly settings: CurveSettings }) {
  const place = useStore(cursorPlace);
  return (
    <p class="panel-values" aria-hidden="true">
      {curve.series.map(
        (series, run) =>
          series !== undefined && (
            <span key={run}>
              <Swatch place={run} />
              {shownAt(series, settings, place)}
            </span>
          ),
      )}
    </p>
  );
}

/** Everything the pictures show, as numbers. */
function ValuesTable({
  curves,
  names,
  settings,
}: {
  readonly curves: readonly Curve[];
  readonly names: readonly string[];
  readonly settings: CurveSettings;
}) {
  const place = useStore(cursorPlace);
  const where = place === undefined ? "newest" : placeName(place, settings);
  return (
    <details class="plain card padded" open>
      <summary>Values</summary>
      <div class="table-frame">
        <table>
          <caption class="visually-hidden">Metrics of the chosen runs</caption>
          <thead>
            <tr>
              <th>Metric</th>
              {names.length > 1 && <th>Run</th>}
              <th class="number">{where}</th>
              <th class="number wide">least</th>
              <th class="number wide">greatest</th>
              <th class="number wide">values</th>
            </tr>
          </thead>
          <tbody>
            {curves.flatMap(({ metric, series }) =>
              series.map(
                (one, run) =>
                  one !== undefined && (
                    <tr key={`${metric} ${run}`}>
                      <th scope="row" class="text">
                        {metric}
                      </th>
                      {names.length > 1 && (
                        <td class="text">
                          <Swatch place={run} /> {names[run]}
                        </td>
                      )}
                      <td class="number">{shownAt(one, settings, place)}</td>
                      <td class="number wide">{shortNumber(one.stats.min)}</td>
                      <td class="number wide">{shortNumber(one.stats.max)}</td>
                      <td class="number wide">{wholeNumber(one.stats.count)}</td>
                    </tr>
                  ),
              ),
            )}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** What stands in the metrics and is no number. */
function Texts({
  metrics,
  runs,
}: {
  readonly metrics: readonly (RunMetrics | undefined)[];
  readonly runs: readonly (RunSummary | undefined)[];
}) {
  const rows = metrics.flatMap((one, run) =>
    Object.entries(one?.texts ?? {}).map(([name, text]) => ({ name, text, run: runs[run]?.name })),
  );
  if (rows.length === 0) return null;
  return (
    <details class="plain card padded">
      <summary>Texts</summary>
      <table>
        <tbody>
          {rows.map(({ name, text, run }) => (
            <tr key={`${run} ${name}`}>
              <th scope="row" class="text">
                {name}
              </th>
              <td class="text muted">{run}</td>
              <td class="text">{text}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
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
