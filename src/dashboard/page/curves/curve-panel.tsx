import { useRef } from "preact/hooks";
import type { RunSummary, ShownWarning } from "../../api.js";
import { type Curve, type CurveSettings, notDrawn } from "../curve-data.js";
import { wholeNumberText } from "../format.js";
import { Chart, shownAt, useCursor, useVisible } from "../parts/chart.js";
import { savePicture } from "../parts/chart-picture.js";
import { Swatch } from "../parts/pieces.js";
import { WarningText } from "../parts/warnings.js";
import type { AxisRange } from "./curve-view.js";

/** Warnings about a metric, with the places of their runs. */
export function warningsOf(
  runs: readonly (RunSummary | undefined)[],
  metric: string,
): readonly PlacedWarning[] {
  return runs.flatMap((run, place) =>
    (run?.warnings ?? []).flatMap((warning) =>
      warning.metric === metric ? [{ ...warning, run: place }] : [],
    ),
  );
}

/** A warning of the run at this place. */
type PlacedWarning = ShownWarning & { readonly run: number };

/** A metric of the chosen runs: its picture, its values, and what was noticed. */
export function Panel({
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
  readonly domain: AxisRange;
  readonly warnings: readonly PlacedWarning[];
  readonly onZoom: (range: AxisRange | undefined) => void;
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
