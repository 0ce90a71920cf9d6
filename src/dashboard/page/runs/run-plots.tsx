import type { RunSummary } from "../../api.js";
import { Empty } from "../parts/pieces.js";
import { linkTo } from "../route.js";
import { axisOf, type PlotAxis } from "./plot-axis.js";
import { chosenDifferently, columnsOfSweeps, fieldOf } from "./run-fields.js";

const WIDTH = 900;
const HEIGHT = 380;
const SPACE = { left: 90, right: 80, top: 30, bottom: 46 };
const RESULTS = ["best", "last", "cost", "duration"] as const;
const FACTS = ["steps", "started", "duration", "cost"] as const;
const MAX_AXES = 7;

/** A setting against a result, one point per run. */
export function ScatterPlot({
  runs,
  x,
  y,
  onAxes,
}: {
  readonly runs: readonly RunSummary[];
  readonly x: string | undefined;
  readonly y: string | undefined;
  readonly onAxes: (axes: { readonly x: string; readonly y: string }) => void;
}) {
  const settings = plottedSettings(runs);
  const chosen = { x: x ?? settings[0] ?? "steps", y: y ?? resultOf(runs) };
  const fields = [fieldOf(chosen.x), fieldOf(chosen.y)] as const;
  const points = runs.filter((run) => fields.every(({ value }) => (value(run) ?? null) !== null));
  const [across, up] = [axisOf(fields[0], points), axisOf(fields[1], points)];
  return (
    <section class="card padded form" aria-label="Scatter plot">
      <div class="bar">
        <FieldSelect
          label="Across"
          value={chosen.x}
          options={[...settings, ...FACTS]}
          onChange={(name) => onAxes({ ...chosen, x: name })}
        />
        <FieldSelect
          label="Up"
          value={chosen.y}
          options={RESULTS}
          onChange={(name) => onAxes({ ...chosen, y: name })}
        />
        <span class="note">
          {points.length} of {runs.length} runs have both
        </span>
      </div>
      {points.length === 0 ? (
        <Empty title="No run has both values" />
      ) : (
        <div class="table-frame">
          <svg class="plot" viewBox={`0 0 ${WIDTH} ${HEIGHT}`}>
            <title>{`${up.field.title} against ${across.field.title}`}</title>
            {across.ticks.map(({ at, label }) => (
              <text key={label} x={xOf(at)} y={HEIGHT - SPACE.bottom + 20} text-anchor="middle">
                {label}
              </text>
            ))}
            {up.ticks.map(({ at, label }) => (
              <g key={label}>
                <line x1={SPACE.left} x2={WIDTH - SPACE.right} y1={yOf(at)} y2={yOf(at)} />
                <text x={SPACE.left - 12} y={yOf(at) + 4} text-anchor="end">
                  {label}
                </text>
              </g>
            ))}
            <text class="axis" x={WIDTH / 2} y={HEIGHT - 6} text-anchor="middle">
              {across.field.title}
            </text>
            <text class="axis" x={SPACE.left - 12} y={14}>
              {titleOf(up, runs)}
            </text>
            {points.map((run) => (
              <a
                key={run.id}
                href={linkTo("curves", { run: run.id })}
                aria-label={describe(run, [across, up])}
              >
                <circle cx={xOf(across.place(run)!)} cy={yOf(up.place(run)!)} r={6}>
                  <title>{describe(run, [across, up])}</title>
                </circle>
              </a>
            ))}
          </svg>
        </div>
      )}
    </section>
  );
}

/** A line per run through its settings to its result. */
export function ParallelPlot({ runs }: { readonly runs: readonly RunSummary[] }) {
  const names = plottedSettings(runs).slice(0, MAX_AXES - 1);
  const fields = [...names, resultOf(runs)].map(fieldOf);
  const shown = runs.filter((run) => fields.every(({ value }) => (value(run) ?? null) !== null));
  const axes = fields.map((field) => axisOf(field, shown));
  const result = axes.at(-1)!;
  if (names.length === 0 || shown.length === 0)
    return (
      <Empty title="Nothing to compare">
        <p>The runs shown have no settings that differ, or no result.</p>
      </Empty>
    );
  const at = (place: number) => xOf(place / (axes.length - 1));
  const isLower = shown.find(({ best }) => best)?.best?.isLowerBetter ?? false;
  return (
    <section class="card padded" aria-label="Parallel coordinates">
      <p class="note">
        One line for each of {shown.length} runs
        {result.field.key === "best" && ", the stronger its colour, the better"}. Point at a line for its
        values.
      </p>
      <div class="table-frame">
        <svg class="plot" viewBox={`0 0 ${WIDTH} ${HEIGHT}`}>
          <title>Settings and results of the runs</title>
          {shown.map((run) => {
            const points = axes.map(
              (axis, place) => `${at(place).toFixed(1)},${yOf(axis.place(run)!).toFixed(1)}`,
            );
            const good = isLower ? 1 - result.place(run)! : result.place(run)!;
            return (
              <a key={run.id} href={linkTo("curves", { run: run.id })} aria-label={describe(run, axes)}>
                <polyline points={points.join(" ")} stroke-opacity={0.25 + 0.75 * good}>
                  <title>{describe(run, axes)}</title>
                </polyline>
              </a>
            );
          })}
          {axes.map((axis, place) => (
            <g key={axis.field.key}>
              <line class="axis" x1={at(place)} x2={at(place)} y1={SPACE.top} y2={HEIGHT - SPACE.bottom} />
              <text class="axis" x={at(place)} y={HEIGHT - 12} text-anchor="middle">
                {titleOf(axis, runs)}
              </text>
              {axis.ticks.map(({ at: height, label }) => (
                <text
                  key={label}
                  x={at(place) + (axis === result ? 8 : -8)}
                  y={yOf(height) + 4}
                  text-anchor={axis === result ? "start" : "end"}
                >
                  {label}
                </text>
              ))}
            </g>
          ))}
        </svg>
      </div>
    </section>
  );
}

function FieldSelect({
  label,
  value,
  options,
  onChange,
}: {
  readonly label: string;
  readonly value: string;
  readonly options: readonly string[];
  readonly onChange: (name: string) => void;
}) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {[...new Set([...options, value])].map((name) => (
          <option key={name} value={name}>
            {fieldOf(name).title}
          </option>
        ))}
      </select>
    </label>
  );
}

function plottedSettings(runs: readonly RunSummary[]): readonly string[] {
  const swept = columnsOfSweeps(runs);
  return swept.length > 0 ? swept : chosenDifferently(runs);
}

function resultOf(runs: readonly RunSummary[]): string {
  return runs.some(({ best }) => best !== undefined) ? "best" : "last";
}

function titleOf({ field }: PlotAxis, runs: readonly RunSummary[]): string {
  if (field.key === "best") return `best ${runs.find(({ best }) => best)?.best?.metric ?? "evaluation"}`;
  if (field.key === "last") return runs.find(({ headline }) => headline)?.headline?.name ?? field.title;
  return field.title;
}

function describe(run: RunSummary, axes: readonly PlotAxis[]): string {
  const values = axes.map(({ field }) => `${field.title} ${field.text(field.value(run) ?? null)}`);
  return `${run.name}: ${values.join(", ")}`;
}

function xOf(place: number): number {
  return SPACE.left + place * (WIDTH - SPACE.left - SPACE.right);
}

function yOf(place: number): number {
  return HEIGHT - SPACE.bottom - place * (HEIGHT - SPACE.bottom - SPACE.top);
}
