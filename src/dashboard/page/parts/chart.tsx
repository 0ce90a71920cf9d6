import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Series } from "../../api.js";
import { type Curve, type CurveSettings, linesOf, valueAt } from "../curve-data.js";
import { durationLabel, shortNumber, wholeNumberText } from "../format.js";
import { PageStore, useStore } from "../store.js";
import { theme } from "../theme.js";
import { type DrawnChart, drawingOf } from "./chart-options.js";
import { Swatch } from "./pieces.js";

/** Where the pointer is on the axis, for all panels. */
export const cursorPlace = new PageStore<number | undefined>(undefined);

const SYNC = "curves";
const REST_MS = 150;

/** Properties of a panel. */
export interface ChartProps extends DrawnChart {
  /** Names of the runs. */
  readonly names: readonly string[];
  /** Only panels that can be seen follow the cursor of another one. */
  readonly isVisible: boolean;
  readonly onZoom: (range: readonly [number, number] | undefined) => void;
}

/** Values under the pointer, beside it. */
interface Hover {
  readonly left: number;
  readonly place: number;
  readonly rows: readonly {
    readonly run: number;
    readonly raw: string;
    readonly smooth: string | undefined;
  }[];
}

/** A picture of one metric. It is drawn when it comes into sight. */
export function Chart(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const [hover, setHover] = useState<Hover | undefined>(undefined);
  const isSeen = useOnce(props.isVisible);
  const choice = useStore(theme);
  const { curve, settings, domain } = props;
  const marked = props.marks.map(({ run, step }) => `${run}:${step}`).join();
  const present = curve.series.map((series) => series !== undefined).join();

  useEffect(() => {
    const element = place.current;
    if (!isSeen || element === null) return;
    const made = new uPlot(
      optionsOf(latest, element, setHover),
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
  }, [curve, settings, domain[0], domain[1], marked]);

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
  return (
    <div class="chart-frame">
      <CursorSlider {...{ curve, settings, domain, place, onKeyDown }} isVisible={props.isVisible} />
      {hover && (
        <Tooltip {...{ hover, settings, names: props.names, width: place.current?.clientWidth ?? 0 }} />
      )}
    </div>
  );
}

/** The place of the picture, which the arrow keys move along. */
function CursorSlider({
  curve,
  settings,
  domain,
  place,
  onKeyDown,
  isVisible,
}: Omit<DrawnChart, "marks"> & {
  readonly place: { readonly current: HTMLDivElement | null };
  readonly onKeyDown: (event: KeyboardEvent) => void;
  readonly isVisible: boolean;
}) {
  const at = useCursor(isVisible);
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

function Tooltip({
  hover: { left, place, rows },
  settings,
  names,
  width,
}: {
  readonly hover: Hover;
  readonly settings: CurveSettings;
  readonly names: readonly string[];
  readonly width: number;
}) {
  const isRight = left > width / 2;
  return (
    <div
      class="tooltip"
      aria-hidden="true"
      style={isRight ? { right: `${width - left + 12}px` } : { left: `${left + 12}px` }}
    >
      <strong>{placeName(place, settings)}</strong>
      {rows.map(({ run, raw, smooth }) => (
        <div key={run}>
          <Swatch place={run} />
          <span class="tooltip-name">{names[run]}</span>
          <span class="number">{raw}</span>
          {smooth !== undefined && <span class="number muted">smoothed {smooth}</span>}
        </div>
      ))}
    </div>
  );
}

/** The cursor's place while the panel can be seen. */
export function useCursor(isVisible: boolean): number | undefined {
  const [place, setPlace] = useState(cursorPlace.value);
  useEffect(() => {
    if (!isVisible) return;
    const update = () => setPlace(cursorPlace.value);
    update();
    return cursorPlace.subscribe(update);
  }, [isVisible]);
  return place;
}

/** The cursor's place when it rests, for what takes long to draw. */
export function useRestingCursor(): number | undefined {
  const [place, setPlace] = useState(cursorPlace.value);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const unsubscribe = cursorPlace.subscribe(() => {
      clearTimeout(timer);
      timer = setTimeout(() => setPlace(cursorPlace.value), REST_MS);
    });
    return () => {
      clearTimeout(timer);
      unsubscribe();
    };
  }, []);
  return place;
}

function optionsOf(
  latest: { readonly current: ChartProps },
  element: HTMLElement,
  onHover: (hover: Hover | undefined) => void,
): uPlot.Options {
  const drawing = drawingOf(latest, { width: element.clientWidth, height: element.clientHeight });
  return {
    ...drawing,
    cursor: {
      sync: { key: SYNC, scales: ["x", null], filters: { sub: () => latest.current.isVisible } },
      drag: { x: true, y: false, setScale: false },
      y: false,
      // A point for each of many runs in each panel would make every move slow.
      points: { show: false },
      bind: {
        dblclick: () => () => {
          latest.current.onZoom(undefined);
          return null;
        },
      },
    },
    hooks: {
      ...drawing.hooks,
      setCursor: [
        (plot) => {
          const { left = -1, event } = plot.cursor;
          const isOut = left < 0;
          // A panel that follows another one has no event of its own.
          onHover(isOut || event === undefined || event === null ? undefined : hoverOf(plot, latest.current));
          const at = isOut ? undefined : plot.posToVal(left, "x");
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

/** Values under the pointer: each run's, and its smoothed one. */
function hoverOf(plot: uPlot, { curve, settings }: ChartProps): Hover {
  const left = plot.cursor.left!;
  const place = plot.posToVal(left, "x");
  const last = plot.cursor.idx ?? plot.data[0]!.length - 1;
  const drawn = curve.series.flatMap((series, run) => (series === undefined ? [] : [{ series, run }]));
  const rows = drawn.map(({ series, run }, line) => {
    const raw = shownAt(series, settings, place);
    const smooth = shortNumber(lastBefore(plot.data[2 * line + 2]!, last));
    return { run, raw, smooth: settings.smoothing > 0 && smooth !== raw ? smooth : undefined };
  });
  // Over the frame: the axis is left of what is drawn.
  return { left: left + plot.over.offsetLeft, place, rows };
}

/** Lines of several runs have gaps where only another run has a point. */
function lastBefore(values: ArrayLike<number | null | undefined>, place: number): number | undefined {
  for (let at = place; at >= 0; at -= 1) {
    const value = values[at];
    if (typeof value === "number") return value;
  }
  return undefined;
}

function inWords({ series }: Curve, settings: CurveSettings, place: number | undefined): string {
  const where = place === undefined ? "last" : placeName(place, settings);
  const values = series.flatMap((one) => (one === undefined ? [] : shownAt(one, settings, place)));
  return `${where}: ${values.join(", ")}`;
}

/** A place of the axis in words. */
export function placeName(place: number, { axis }: CurveSettings): string {
  return axis === "time" ? `after ${durationLabel(Math.max(0, place))}` : `at step ${wholeNumberText(place)}`;
}

/** The value under the cursor, or the newest. */
export function shownAt(series: Series, { axis }: CurveSettings, place: number | undefined): string {
  const value = place === undefined ? series.stats.last : valueAt(series, axis, place);
  return value === undefined ? "–" : shortNumber(value);
}

/** Whether an element was ever in sight. */
export function useSeen(place: { readonly current: Element | null }): boolean {
  return useOnce(useVisible(place));
}

/** Stays true. */
function useOnce(value: boolean): boolean {
  const was = useRef(false);
  was.current ||= value;
  return was.current;
}

/** Whether an element is in sight, or nearly. */
export function useVisible(place: { readonly current: Element | null }): boolean {
  const [isVisible, setIsVisible] = useState(false);
  useEffect(() => {
    if (place.current === null) return;
    const observer = new IntersectionObserver((entries) => setIsVisible(entries.at(-1)!.isIntersecting), {
      rootMargin: "200px",
    });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  return isVisible;
}
