import type { CurveSettings } from "../curve-data.js";

/** A part of the horizontal axis. */
export type AxisRange = readonly [number, number];

/** How the curves are looked at; it is part of the address, so that a reload or a link shows the same. */
export interface CurveView {
  readonly settings: CurveSettings;
  readonly filter: string;
  readonly zoom: AxisRange | undefined;
}

const SMOOTHING = 0.6;

/** Reads it from the address. */
export function readView(query: URLSearchParams): CurveView {
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

/** Writes it for the address. */
export function writeView({ settings: { axis, smoothing, isLog }, filter, zoom }: CurveView) {
  return {
    axis: axis === "time" ? axis : undefined,
    smoothing: smoothing === SMOOTHING ? undefined : String(smoothing),
    log: isLog ? "yes" : undefined,
    metrics: filter === "" ? undefined : filter,
    zoom: zoom?.map((place) => String(Math.round(place * 1000) / 1000)).join(","),
  };
}
