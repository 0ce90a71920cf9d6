import type { CurveSettings } from "../curve-data.js";
import type { AxisRange, CurveView } from "./curve-view.js";

/** How the curves are drawn, and which part of them. */
export function CurveControls({
  view: { settings, filter, zoom },
  domain,
  hasTimes,
  onChange,
  onSave,
}: {
  readonly view: CurveView;
  readonly domain: AxisRange | undefined;
  readonly hasTimes: boolean;
  readonly onChange: (part: Partial<CurveView>) => void;
  /** Undefined while there is nothing to save. */
  readonly onSave: (() => void) | undefined;
}) {
  const setSettings = (next: CurveSettings) =>
    onChange({ settings: next, ...(next.axis !== settings.axis && { zoom: undefined }) });
  return (
    <fieldset class="bar">
      <legend class="visually-hidden">How curves are drawn</legend>
      <label>
        Metrics
        <input
          type="search"
          placeholder="all"
          value={filter}
          onInput={(event) => onChange({ filter: event.currentTarget.value })}
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
        <ZoomFields
          domain={domain}
          isZoomed={zoom !== undefined}
          settings={settings}
          onZoom={(next) => onChange({ zoom: next })}
        />
      )}
      <button type="button" class="end" onClick={onSave} disabled={onSave === undefined}>
        Save as CSV
      </button>
    </fieldset>
  );
}

function ZoomFields({
  domain,
  isZoomed,
  settings,
  onZoom,
}: {
  readonly domain: AxisRange;
  readonly isZoomed: boolean;
  readonly settings: CurveSettings;
  readonly onZoom: (range: AxisRange | undefined) => void;
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
