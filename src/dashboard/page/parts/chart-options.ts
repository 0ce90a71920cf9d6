import type uPlot from "uplot";
import { type Curve, type CurveSettings, placeOfStep } from "../curve-data.js";
import { durationLabel } from "../format.js";
import { colorOf } from "../theme.js";

const DASHES: readonly number[][] = [[], [], [], [], [6, 3], [6, 3], [2, 3], [2, 3]];
/** Distances of ticks on the axis of steps: there is no step 2.5. */
const STEP_DISTANCES = Array.from({ length: 16 }, (_, power) =>
  [1, 2, 5].map((digit) => digit * 10 ** power),
).flat();

/** A step of a run that is marked in a chart. */
export interface ChartMark {
  readonly run: number;
  readonly step: number;
}

/** The part of a chart's properties that its picture depends on. */
export interface DrawnChart {
  readonly curve: Curve;
  /** Steps at which something was noticed. */
  readonly marks: readonly ChartMark[];
  readonly settings: CurveSettings;
  readonly domain: readonly [number, number];
}

/** How a panel is drawn; `scale` makes everything larger, for a picture to save. */
export function drawingOf(
  latest: { readonly current: DrawnChart },
  size: { readonly width: number; readonly height: number },
  scale = 1,
): uPlot.Options {
  const { curve, settings } = latest.current;
  const isSmooth = settings.smoothing > 0;
  const lines = curve.series.flatMap((series, run): uPlot.Series[] => {
    if (series === undefined) return [];
    const stroke = () => colorOf(`run-${run}`);
    const dash = (DASHES[run] ?? []).map((length) => length * scale);
    const raw = { width: (isSmooth ? 1 : 1.5) * scale, alpha: isSmooth ? 0.28 : 1 };
    return [
      { stroke, ...raw, dash, points: { size: 5 * scale } },
      { stroke, width: 2 * scale, dash, show: isSmooth, points: { show: false } },
    ];
  });
  const font = `${11 * scale}px system-ui`;
  const axis = { stroke: () => colorOf("muted"), font, ticks: { show: false }, gap: 5 * scale };
  return {
    width: size.width * scale,
    height: size.height * scale,
    legend: { show: false },
    padding: [8 * scale, 8 * scale, 0, 0],
    scales: {
      x: { time: false, range: () => padded(latest.current.domain) },
      y: settings.isLog ? { distr: 3 } : { range: (_, min, max) => heightOf(min, max) },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        values: (_, places) => places.map((at) => axisLabel(at, settings)),
        size: 26 * scale,
        space: 50 * scale,
        ...(settings.axis === "step" && { incrs: STEP_DISTANCES }),
      },
      {
        ...axis,
        grid: { stroke: () => colorOf("line"), width: scale },
        size: 46 * scale,
        space: 30 * scale,
        values: (_, values) => tickLabels(values),
      },
    ],
    series: [{}, ...lines],
    hooks: { draw: [(plot) => drawMarks(plot, latest.current, scale)] },
  };
}

/** A dashed line at each warning. */
function drawMarks(
  { ctx, bbox, valToPos }: uPlot,
  { curve, marks, settings }: DrawnChart,
  scale: number,
): void {
  for (const { run, step } of marks) {
    const series = curve.series[run];
    const place = series && placeOfStep(series, step, settings.axis);
    if (place === undefined) continue;
    const x = valToPos(place, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.save();
    ctx.strokeStyle = colorOf("warn");
    ctx.lineWidth = 1.5 * scale * devicePixelRatio;
    ctx.setLineDash([4 * scale, 3 * scale]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }
}

function padded([from, to]: readonly [number, number]): [number, number] {
  return from === to ? [from - 1, to + 1] : [from, to];
}

/** The values with some space above and below; a constant lies in the middle. */
function heightOf(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null || !Number.isFinite(min) || !Number.isFinite(max)) return [0, 1];
  if (min === max) {
    const space = min === 0 ? 1 : Math.abs(min) / 2;
    return [min - space, max + space];
  }
  const space = (max - min) * 0.08;
  // Values that are never negative are not drawn above a negative axis.
  return [min >= 0 ? Math.max(0, min - space) : min - space, max + space];
}

function axisLabel(place: number, { axis }: CurveSettings): string {
  return axis === "time" ? durationLabel(place) : tickLabel(place);
}

/** Few digits, unless neighbours would read the same. */
function tickLabels(values: readonly (number | null)[]): string[] {
  const labels = values.map((value) => (value === null ? "" : tickLabel(value)));
  const isPlain = new Set(labels).size === labels.length || labels.includes("");
  return isPlain ? labels : values.map((value) => (value === null ? "" : value.toPrecision(4)));
}

function tickLabel(value: number): string {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e9 || size < 1e-3)
    return value
      .toExponential(1)
      .replace(/\.0(?=e)/, "")
      .replace("e+", "e");
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(4)}k`;
  return String(+value.toPrecision(6));
}
