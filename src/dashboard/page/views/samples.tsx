import type { RunSummary, SampleIndex } from "../../api.js";
import type { ViewProps } from "../app.js";
import { wholeNumberText } from "../format.js";
import { runList } from "../live.js";
import { Empty, Loaded } from "../parts/pieces.js";
import { linkTo, replaceRoute } from "../route.js";
import { readListLook, writeListLook } from "../samples/list-look.js";
import { PromptHistoryView } from "../samples/prompt-history.js";
import { Report } from "../samples/report.js";
import { StepSamples } from "../samples/step-samples.js";
import { askJson } from "../server.js";
import { useAsked, useStore } from "../store.js";

/** The samples of a run, step by step: episodes with their rewards, and training examples. */
export function SamplesView({ route }: ViewProps) {
  const list = useStore(runList);
  const [asked] = route.query.getAll("run");
  if (list === undefined) return <p role="status">Loading the runs…</p>;
  const runs = list.runs.filter(({ id, hasSamples }) => hasSamples || id === asked);
  const run = runs.find(({ id }) => id === asked) ?? runs[0];
  if (run === undefined) return <NoSamples />;
  const chosen = [run.id, ...route.query.getAll("run").filter((id) => id !== run.id)];
  return (
    <>
      <div class="bar">
        <label>
          Run
          <select
            value={run.id}
            onChange={(event) => replaceRoute(linkTo("samples", { run: event.currentTarget.value }))}
          >
            {runs.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </div>
      {!run.hasSamples && <NoSamples />}
      {run.hasSamples && (
        <RunSamples
          key={run.id}
          run={run.id}
          lastStep={run.step}
          runs={runs}
          query={route.query}
          onQuery={(place, id = run.id) =>
            replaceRoute(
              linkTo("samples", { run: [id, ...chosen.filter((other) => other !== id)], ...place }),
            )
          }
          onRuns={(ids) => {
            const place = Object.fromEntries([...route.query].filter(([name]) => name !== "run"));
            replaceRoute(linkTo("samples", { run: ids, ...place }));
          }}
        />
      )}
    </>
  );
}

function NoSamples() {
  return (
    <Empty title="No samples yet">
      <p>Runs keep their samples and training examples in folders iteration_000000 and so on.</p>
    </Empty>
  );
}

/** A place in the samples of a run, as the address has it. */
type Place = Readonly<Record<string, string | undefined>>;

function RunSamples({
  run,
  runs,
  lastStep,
  query,
  onQuery,
  onRuns,
}: {
  readonly run: string;
  /** Runs with samples, which can be compared. */
  readonly runs: readonly RunSummary[];
  readonly lastStep: number | undefined;
  readonly query: URLSearchParams;
  /** Goes to a place, of this run or of another one. */
  readonly onQuery: (place: Place, run?: string) => void;
  readonly onRuns: (runs: readonly string[]) => void;
}) {
  const index = useAsked(
    (signal) => askJson<SampleIndex>(`runs/${run}/samples`, { signal }),
    [run, lastStep],
  );
  return (
    <Loaded asked={index}>
      {({ steps }) => {
        const last = steps.at(-1);
        if (last === undefined) return <NoSamples />;
        const wanted = query.get("step");
        const at =
          wanted === null
            ? steps.length - 1
            : nearest(
                steps.map(({ step }) => step),
                Number(wanted),
              );
        const { step, splits, reports } = steps[at]!;
        const parts = [...splits, ...reports.map((name) => `report:${name}`)];
        const split = parts.find((name) => name === query.get("split")) ?? parts[0]!;
        const look = writeListLook(readListLook(query));
        const go = (place: number) =>
          onQuery({
            ...look,
            step: String(steps[Math.min(steps.length - 1, Math.max(0, place))]!.step),
            split,
          });
        return (
          <>
            <div class="bar">
              <button type="button" onClick={() => go(at - 1)} disabled={at === 0} aria-label="Earlier step">
                ←
              </button>
              <label>
                Step
                <input
                  type="range"
                  min={0}
                  max={steps.length - 1}
                  value={at}
                  aria-valuetext={String(step)}
                  onInput={(event) => go(Number(event.currentTarget.value))}
                />
                <output class="number">
                  {wholeNumberText(step)} <span class="muted">of {wholeNumberText(last.step)}</span>
                </output>
              </label>
              <button
                type="button"
                onClick={() => go(at + 1)}
                disabled={at === steps.length - 1}
                aria-label="Later step"
              >
                →
              </button>
              <label>
                Show
                <select
                  value={split}
                  onChange={(event) =>
                    onQuery({ ...look, step: String(step), split: event.currentTarget.value })
                  }
                >
                  {parts.map((name) => (
                    <option key={name} value={name}>
                      {partName(name)}
                    </option>
                  ))}
                </select>
              </label>
            </div>
            {split.startsWith("report:") ? (
              <Report run={run} step={step} name={split.slice("report:".length)} />
            ) : query.get("prompt") !== null ? (
              <PromptHistoryView
                {...{ runs, split }}
                promptKey={query.get("prompt")!}
                chosen={[run, ...query.getAll("run").filter((id) => id !== run)]}
                onRuns={onRuns}
                onSample={(id, place) =>
                  onQuery({ step: String(place.step), split, sample: place.sample }, id)
                }
                onClose={() => onQuery({ step: String(step), split })}
              />
            ) : (
              <StepSamples
                {...{ run, step, split }}
                look={readListLook(query)}
                chosen={query.get("sample")}
                onLook={(look) => onQuery({ step: String(step), split, ...writeListLook(look) })}
                onChoose={(place) => onQuery({ ...look, step: String(step), split, sample: String(place) })}
                onPrompt={(prompt) => onQuery({ ...look, step: String(step), split, prompt })}
              />
            )}
          </>
        );
      }}
    </Loaded>
  );
}

function nearest(steps: readonly number[], wanted: number): number {
  const found = steps.findIndex((step) => step >= wanted);
  return found === -1 ? steps.length - 1 : found;
}

function partName(part: string): string {
  if (part === "train") return "training";
  if (part.startsWith("eval_")) return `evaluation: ${part.slice("eval_".length)}`;
  if (part.startsWith("report:")) return `report: ${part.slice("report:".length)}`;
  return part;
}
