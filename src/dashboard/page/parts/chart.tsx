import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Series } from "../../api.js";
import { type Curve, type CurveSettings, linesOf, valueAt } from "../curve-data.js";
import { duration, shortNumber, wholeNumber } from "../format.js";
import { saveAs } from "../save.js";
import { Store, useStore } from "../store.js";
import { colorOf, theme } from "../theme.js";

/** Where the pointer is on the axis, for all panels. */
export const cursorPlace = new Store<number | undefined>(undefined);

const SYNC = "curves";
const DASHES: readonly number[][] = [[], [], [], [], [6, 3], [6, 3], [2, 3], [2, 3]];

/** What a panel draws. */
export interface ChartProps {
  readonly curve: Curve;
  readonly settings: CurveSettings;
  readonly domain: readonly [number, number];
  readonly onZoom: (range: readonly [number, number] | undefined) => void;
}

/** A picture of one metric. It is drawn when it comes into sight. */
export function Chart(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const isSeen = useSeen(place);
  const choice = useStore(theme);
  const { curve, settings, domain } = props;
  const present = curve.series.map((series) => series !== undefined).join();

  useEffect(() => {
    const element = place.current;
    if (!isSeen || element === null) return;
    const made = new uPlot(
      optionsOf(latest, element),
      linesOf(latest.current.curve, latest.current.settings),
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() =>
      made.setSize({ width: element.clientWidth, height: element.clientHeight }),
    );
    observer.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const recolor = () => made.redraw();
    dark.addEventListener("change", recolor);
    return () => {
      dark.removeEventListener("change", recolor);
      observer.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [isSeen, present, settings.isLog, settings.axis, settings.smoothing > 0, choice]);

  useEffect(() => {
    plot.current?.setData(linesOf(curve, settings));
  }, [curve, settings, domain[0], domain[1]]);

  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const made = plot.current;
    if (step === undefined || made === undefined) return;
    event.preventDefault();
    const width = made.over.clientWidth;
    const before = made.cursor.left === undefined || made.cursor.left < 0 ? width : made.cursor.left;
    const left = Math.min(width, Math.max(0, before + (step * width) / 50));
    // The third argument, which the types do not know, moves the cursors of the other panels too.
    const move: (at: { left: number; top: number }, tell: boolean, all: boolean) => void = made.setCursor;
    move({ left, top: made.over.clientHeight / 2 }, true, true);
  };
  const at = useStore(cursorPlace);
  return (
    <div
      class="chart"
      ref={place}
      tabIndex={0}
      role="slider"
      aria-label={`${curve.metric}, with a cursor that the arrow keys move`}
      aria-valuemin={domain[0]}
      aria-valuemax={domain[1]}
      aria-valuenow={at ?? domain[1]}
      aria-valuetext={inWords(curve, settings, at)}
      onKeyDown={onKeyDown}
    />
  );
}

/** Saves a panel as a picture, with its title. */
export async function savePicture(element: Element, title: string): Promise<void> {
  const drawn = element.querySelector("canvas");
  if (drawn === null) return;
  const scale = devicePixelRatio;
  const room = 30 * scale;
  const canvas = document.createElement("canvas");
  canvas.width = drawn.width + room;
  canvas.height = drawn.height + room * 1.5;
  const context = canvas.getContext("2d")!;
  context.fillStyle = colorOf("surface");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = colorOf("text");
  context.font = `600 ${14 * scale}px system-ui`;
  context.fillText(title, room / 2, room * 0.8, canvas.width - room);
  context.drawImage(drawn, room / 2, room);
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve));
  if (blob !== null) saveAs(blob, `${title}.png`);
}

function optionsOf(latest: { readonly current: ChartProps }, element: HTMLElement): uPlot.Options {
  const { curve, settings } = latest.current;
  const isSmooth = settings.smoothing > 0;
  const lines = curve.series.flatMap((series, run): uPlot.Series[] => {
    if (series === undefined) return [];
    const stroke = () => colorOf(`run-${run}`);
    const dash = DASHES[run] ?? [];
    return [
      { stroke, width: isSmooth ? 1 : 1.5, alpha: isSmooth ? 0.28 : 1, dash, points: { size: 5 } },
      { stroke, width: 2, dash, show: isSmooth, points: { show: false } },
    ];
  });
  const axis = { stroke: () => colorOf("muted"), font: "11px system-ui", ticks: { show: false } };
  const grid = { stroke: () => colorOf("line"), width: 1 };
  return {
    width: element.clientWidth,
    height: element.clientHeight,
    legend: { show: false },
    padding: [8, 8, 0, 0],
    cursor: {
      sync: { key: SYNC, scales: ["x", null] },
      drag: { x: true, y: false, setScale: false },
      y: false,
      points: { size: 6 },
      bind: {
        dblclick: () => () => {
          latest.current.onZoom(undefined);
          return null;
        },
      },
    },
    scales: {
      x: { time: false, range: () => padded(latest.current.domain) },
      y: settings.isLog ? { distr: 3 } : {},
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        values: (_, places) => places.map((at) => axisLabel(at, settings)),
        size: 26,
      },
      {
        ...axis,
        grid,
        size: 46,
        values: (_, values) => tickLabels(values),
      },
    ],
    series: [{}, ...lines],
    hooks: {
      setCursor: [
        (plot) => {
          const { left } = plot.cursor;
          const at = left === undefined || left < 0 ? undefined : plot.posToVal(left, "x");
          if (at !== cursorPlace.value) cursorPlace.set(at);
        },
      ],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < 4) return;
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          latest.current.onZoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
        },
      ],
    },
  };
}

function padded([from, to]: readonly [number, number]): [number, number] {
  return from === to ? [from - 1, to + 1] : [from, to];
}

function axisLabel(place: number, { axis }: CurveSettings): string {
  return axis === "time" ? duration(place) : tickLabel(place);
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

function inWords({ series }: Curve, settings: CurveSettings, place: number | undefined): string {
  const where = place === undefined ? "newest" : placeName(place, settings);
  const values = series.flatMap((one) => (one === undefined ? [] : shownAt(one, settings, place)));
  return `${where}: ${values.join(", ")}`;
}

/** A place of the axis in words. */
export function placeName(place: number, { axis }: CurveSettings): string {
  return axis === "time" ? `after ${duration(Math.max(0, place))}` : `at step ${wholeNumber(place)}`;
}

/** The value under the cursor, or the newest. */
export function shownAt(series: Series, { axis }: CurveSettings, place: number | undefined): string {
  const value = place === undefined ? series.stats.last : valueAt(series, axis, place);
  return value === undefined ? "–" : shortNumber(value);
}

function useSeen(place: { readonly current: Element | null }): boolean {
  const [isSeen, setIsSeen] = useState(false);
  useEffect(() => {
    if (place.current === null) return;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some(({ isIntersecting }) => isIntersecting)) setIsSeen(true);
      },
      { rootMargin: "300px" },
    );
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  return isSeen;
}
