import { useState } from "preact/hooks";
import type { RunCurves, RunSummary } from "../../api.js";
import type { Curve, CurveSettings } from "../curve-data.js";
import { shortNumber, wholeNumberText } from "../format.js";
import { placeName, shownAt, useRestingCursor } from "../parts/chart.js";
import { Swatch } from "../parts/pieces.js";

/** Rows of the table of values that are shown at first: thousands would slow down the whole page. */
const VALUE_ROWS = 100;

/** Everything the pictures show, as numbers. */
export function ValuesTable({
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
export function Texts({
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
