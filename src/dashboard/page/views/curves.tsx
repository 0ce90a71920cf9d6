import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RunCurves, RunSummary, ShownWarning } from "../../api.js";
import type { ViewProps } from "../app.js";
import { type Curve, type CurveSettings, curveGroups, domainOf, notDrawn } from "../curve-data.js";
import { distinctNames, shortNumber, stepsText, wholeNumberText } from "../format.js";
import { follow, loadProblem, metricsOf, POINTS, runList } from "../live.js";
import { Chart, placeName, shownAt, useCursor, useRestingCursor, useVisible } from "../parts/chart.js";
import { savePicture } from "../parts/chart-picture.js";
import { Empty, ProblemNote, Swatch } from "../parts/pieces.js";
import { Settings } from "../parts/settings.js";
import { StepTimes } from "../parts/step-times.js";
import { WarningList, WarningSign, WarningText } from "../parts/warnings.js";
import { linkTo, replaceRoute } from "../route.js";
import { dollars } from "../runs/run-fields.js";
import { saveAs } from "../save.js";
import { ask, askJson } from "../server.js";
import { problemOf, useAsked, useStore } from "../store.js";
import { MAX_COMPARED } from "./runs.js";

type Range = readonly [number, number];

/** How the curves are looked at; it is part of the address, so that a reload or a link shows the same. */
interface CurveView {
  readonly settings: CurveSettings;
  readonly filter: string;
  readonly zoom: Range | undefined;
}

const SMOOTHING = 0.6;

function readView(query: URLSearchParams): CurveView {
  const smoothing = Number(query.get("smoothing") ?? SMOOTHING);
  const zoom = (query.get("zoom") ?? "").split(",").map(Number);
  const isRange = zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0]! < zoom[1]!;
  return {
    settings: {
      axis: query.get("axis") === "time" ? "time" : "step",
      smoothing: smoothing >= 0 && smoothing < 1 ? smoothing : SMOOTHING,
      isLog: query.has("log"),
    },
    filter: query.get("metrics") ?? "",
    zoom: isRange ? [zoom[0]!, zoom[1]!] : undefined,
  };
}

function writeView({ settings: { axis, smoothing, isLog }, filter, zoom }: CurveView) {
  return {
    axis: axis === "time" ? axis : undefined,
    smoothing: smoothing === SMOOTHING ? undefined : String(smoothing),
    log: isLog ? "yes" : undefined,
    metrics: filter === "" ? undefined : filter,
    zoom: zoom?.map((place) => String(Math.round(place * 1000) / 1000)).join(","),
  };
}

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
  const setSettings = (next: CurveSettings) =>
    change({ settings: next, ...(next.axis !== settings.axis && { zoom: undefined }) });
  const setFilter = (next: string) => change({ filter: next });
  const setZoom = (next: Range | undefined) => change({ zoom: next });
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
  zoom: Range | undefined,
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

function RunKeys({
  ids,
  runs,
  names,
  metrics,
}: {
  readonly ids: readonly string[];
  readonly runs: readonly (RunSummary | undefined)[];
  readonly names: readonly string[];
  readonly metrics: readonly (RunCurves | undefined)[];
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
            {run?.steps !== undefined && <span class="muted">{stepsText(run)}</span>}
            {run?.costUsd ? <span class="muted">{dollars(run.costUsd)}</span> : null}
            {run && <WarningSign run={run} />}
            {leftOut > 0 && <span class="tag">more metrics than are kept</span>}
            {bad > 0 && (
              <span class="tag">
                {wholeNumberText(bad)} unreadable {bad === 1 ? "line" : "lines"}
              </span>
            )}
            {ids.length > 1 && (
              <a
                href={linkTo("curves", { run: ids.filter((other) => other !== id) })}
                aria-label={`Remove ${names[place]}`}
              >
                Remove
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

/** Warnings about a metric, with the places of their runs. */
function warningsOf(runs: readonly (RunSummary | undefined)[], metric: string): readonly PlacedWarning[] {
  return runs.flatMap((run, place) =>
    (run?.warnings ?? []).flatMap((warning) =>
      warning.metric === metric ? [{ ...warning, run: place }] : [],
    ),
  );
}

/** A warning of the run at this place. */
type PlacedWarning = ShownWarning & { readonly run: number };

function Panel({
  curve,
  names,
  settings,
  domain,
  warnings,
  onZoom,
}: {
  readonly curve: Curve;
  readonly names: readonly string[];
  readonly settings: CurveSettings;
  readonly domain: Range;
  readonly warnings: readonly PlacedWarning[];
  readonly onZoom: (range: Range | undefined) => void;
}) {
  const { metric, series } = curve;
  const place = useRef<HTMLElement>(null);
  const isVisible = useVisible(place);
  const hidden = series.reduce(
    (sum, one) => sum + (one === undefined ? 0 : notDrawn(one, settings.isLog)),
    0,
  );
  const first = series.find((one) => one?.stats.firstNotFiniteStep !== undefined)?.stats.firstNotFiniteStep;
  return (
    <section class="card panel" aria-label={metric} ref={place}>
      <div class="panel-head">
        <h3>{metric}</h3>
        <button
          type="button"
          class="quiet small"
          aria-label={`Save ${metric} as PNG`}
          title="Save as PNG"
          onClick={() => {
            const drawn = place.current?.querySelector(".chart");
            if (drawn) void savePicture({ curve, settings, domain, marks: warnings }, names, drawn);
          }}
        >
          ↓ PNG
        </button>
      </div>
      <Chart {...{ curve, names, settings, domain, isVisible, onZoom }} marks={warnings} />
      <PanelValues {...{ curve, names, settings, isVisible }} />
      {warnings.map((warning, index) => (
        <p key={index} class="note warn text">
          {names.length > 1 && <Swatch place={warning.run} />} <WarningText warning={warning} />
        </p>
      ))}
      {hidden > 0 && (
        <p class="note warn">
          {wholeNumberText(hidden)} {hidden === 1 ? "value is" : "values are"} not drawn
          {first !== undefined && `: not a number, first at step ${wholeNumberText(first)}`}
        </p>
      )}
    </section>
  );
}

/** The legend of a panel, with the values under the cursor. */
function PanelValues({
  curve,
  names,
  settings,
  isVisible,
}: {
  readonly curve: Curve;
  readonly names: readonly string[];
  readonly settings: CurveSettings;
  readonly isVisible: boolean;
}) {
  const place = useCursor(isVisible);
  return (
    <p class="panel-values" aria-hidden="true">
      {curve.series.map(
        (series, run) =>
          series !== undefined && (
            <span key={run}>
              <Swatch place={run} />
              {names.length > 1 && <span class="legend-name">{names[run]}</span>}
              <span class="panel-value">{shownAt(series, settings, place)}</span>
            </span>
          ),
      )}
    </p>
  );
}

/** Rows of the table of values that are shown at first: thousands would slow down the whole page. */
const VALUE_ROWS = 100;

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
  const place = useRestingCursor();
  const [shown, setShown] = useState(VALUE_ROWS);
  const rows = curves.flatMap(({ metric, series }) =>
    series.flatMap((one, run) => (one === undefined ? [] : [{ metric, one, run }])),
  );
  const where = place === undefined ? "last" : placeName(place, settings);
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
              <th class="number wide">min</th>
              <th class="number wide">max</th>
              <th class="number wide">count</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, shown).map(({ metric, one, run }) => (
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
                <td class="number wide">{wholeNumberText(one.stats.count)}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {rows.length > shown && (
          <button type="button" class="small" onClick={() => setShown(rows.length)}>
            Show all {wholeNumberText(rows.length)} rows
          </button>
        )}
      </div>
    </details>
  );
}

/** Values among the metrics that are not numbers. */
function Texts({
  metrics,
  runs,
}: {
  readonly metrics: readonly (RunCurves | undefined)[];
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
