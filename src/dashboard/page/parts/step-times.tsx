import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Points, RunCurves } from "../../api.js";
import { shortNumber } from "../format.js";
import { useStore } from "../store.js";
import { colorOf, theme } from "../theme.js";
import { useSeen } from "./chart.js";
import { Swatch } from "./pieces.js";

const MAX_PARTS = 8;
const MAX_PLACES = 300;

/** Kinds of work in a step's seconds. */
interface TimeParts {
  readonly names: readonly string[];
  readonly steps: readonly number[];
  /** For each part its seconds at each of the steps. */
  readonly seconds: readonly (readonly number[])[];
}

/** Seconds of each step by kind, one above the other, for each run whose log has several kinds. */
export function StepTimes({
  metrics,
  names,
}: {
  readonly metrics: readonly (RunCurves | undefined)[];
  readonly names: readonly string[];
}) {
  const shown = useMemo(
    () =>
      metrics.flatMap((one, run) => {
        const parts = one && timeParts(one);
        return parts === undefined ? [] : [{ parts, run }];
      }),
    [metrics],
  );
  if (shown.length === 0) return null;
  return (
    <details class="group" open>
      <summary>
        <h2 class="group-title">Time per step, by kind</h2>
      </summary>
      <div class="panels">
        {shown.map(({ parts, run }) => (
          <section key={run} class="card panel" aria-label={`Time per step of ${names[run]}`}>
            <div class="panel-head">
              <h3>{names[run]}</h3>
              <span class="note">seconds</span>
            </div>
            <StackedChart parts={parts} />
            <p class="panel-values">
              {parts.names.map((name, part) => (
                <span key={name}>
                  <Swatch place={part} />
                  {name} {shortNumber(parts.seconds[part]!.at(-1))}
                </span>
              ))}
            </p>
          </section>
        ))}
      </div>
    </details>
  );
}

/** Seconds by category, as the training loops measure them. */
const CATEGORY = /^time\/in_([^/]+)$/;
/** Parts of a step in logs of other programs, without their sum, details and evaluations. */
const PART = /^time\/(?!in_|total$|evals$|sampling_time)([^/]+)$/;

/** Kinds of time that add up to a step. */
function timeParts({ series }: RunCurves): TimeParts | undefined {
  const matching = (pattern: RegExp) =>
    Object.entries(series).flatMap(([metric, values]) => {
      const [, name] = pattern.exec(metric) ?? [];
      return name === undefined ? [] : [{ name, values: values.means ?? values }];
    });
  const categories = matching(CATEGORY);
  const shown = (categories.length > 0 ? categories : matching(PART)).slice(0, MAX_PARTS);
  const first = shown.toSorted((one, other) => other.values.steps.length - one.values.steps.length)[0];
  if (shown.length < 2 || first === undefined || first.values.steps.length < 2) return undefined;
  const every = Math.ceil(first.values.steps.length / MAX_PLACES);
  const steps = first.values.steps.filter((_, at) => at % every === 0);
  return {
    names: shown.map(({ name }) => name),
    steps,
    seconds: shown.map(({ values }) => steps.map((step) => secondsAt(values, step))),
  };
}

/** Nothing at steps where a part was not measured: not every step evaluates or saves. */
function secondsAt({ steps, values }: Points, step: number): number {
  let [low, high] = [0, steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle]! < step) low = middle + 1;
    else high = middle;
  }
  return steps[low] === step ? Math.max(0, values[low] ?? 0) : 0;
}

function StackedChart({ parts }: { readonly parts: TimeParts }) {
  const place = useRef<HTMLDivElement>(null);
  const choice = useStore(theme);
  const isSeen = useSeen(place);
  useEffect(() => {
    if (!isSeen) return;
    const element = place.current!;
    const plot = new uPlot(stackedOptions(parts, element), stacked(parts), element);
    const observer = new ResizeObserver(() =>
      plot.setSize({ width: element.clientWidth, height: element.clientHeight }),
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [isSeen, parts, choice]);
  const last = parts.names.map((name, part) => `${name} ${shortNumber(parts.seconds[part]!.at(-1))} s`);
  return <div class="chart" ref={place} role="img" aria-label={`Last step: ${last.join(", ")}`} />;
}

/** Sums up to and including each part, the highest first, so that the lower ones are drawn over them. */
function stacked({ steps, seconds }: TimeParts): uPlot.AlignedData {
  const sums: number[][] = [];
  for (const part of seconds) sums.push(part.map((value, at) => value + (sums.at(-1)?.[at] ?? 0)));
  return [[...steps], ...sums.toReversed()];
}

function stackedOptions({ names }: TimeParts, { clientWidth, clientHeight }: Element): uPlot.Options {
  const axis = { stroke: () => colorOf("muted"), font: "11px system-ui", ticks: { show: false } };
  return {
    ...{ width: clientWidth, height: clientHeight, legend: { show: false }, cursor: { show: false } },
    scales: { x: { time: false }, y: { range: (_plot, _min, max) => [0, max || 1] } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, values: (_, steps) => steps.map((step) => String(step)) },
      { ...axis, grid: { stroke: () => colorOf("line"), width: 1 }, size: 46 },
    ],
    series: [
      {},
      ...names
        .map((_, part) => ({ fill: () => colorOf(`run-${part}`), width: 0, points: { show: false } }))
        .toReversed(),
    ],
  };
}
