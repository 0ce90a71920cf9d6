import { useState } from "preact/hooks";
import type { ReportNode, Sample, SampleIndex, SampleList, SampleSummary, ShownTurn } from "../../api.js";
import type { ViewProps } from "../app.js";
import { shortNumber, wholeNumber } from "../format.js";
import { runList } from "../live.js";
import { Conversation } from "../parts/conversation.js";
import { Answer, Empty } from "../parts/pieces.js";
import { type Coloring, coloringsOf, TokenControls, Tokens } from "../parts/tokens.js";
import { linkTo, replaceRoute } from "../route.js";
import { askJson } from "../server.js";
import { useAsked, useStore } from "../store.js";

/** What a run says, step by step: episodes by their rewards, and the examples it learns from. */
export function SamplesView({ route }: ViewProps) {
  const list = useStore(runList);
  const [asked] = route.query.getAll("run");
  if (list === undefined) return <p role="status">Looking for runs…</p>;
  const runs = list.runs.filter(({ id, hasSamples }) => hasSamples || id === asked);
  const run = runs.find(({ id }) => id === asked) ?? runs[0];
  if (run === undefined) return <NoSamples />;
  const others = route.query.getAll("run").slice(1);
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
          query={route.query}
          onQuery={(query) => replaceRoute(linkTo("samples", { run: [run.id, ...others], ...query }))}
        />
      )}
    </>
  );
}

function NoSamples() {
  return (
    <Empty title="No samples yet">
      <p>Runs keep what they sample and what they learn from in folders iteration_000000 and so on.</p>
    </Empty>
  );
}

interface Place {
  readonly step?: string | undefined;
  readonly split?: string | undefined;
  readonly sample?: string | undefined;
}

function RunSamples({
  run,
  lastStep,
  query,
  onQuery,
}: {
  readonly run: string;
  readonly lastStep: number | undefined;
  readonly query: URLSearchParams;
  readonly onQuery: (place: Place) => void;
}) {
  const index = useAsked(
    (signal) => askJson<SampleIndex>(`runs/${run}/samples`, { signal }),
    [run, lastStep],
  );
  return (
    <Answer asked={index}>
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
        const go = (place: number) =>
          onQuery({ step: String(steps[Math.min(steps.length - 1, Math.max(0, place))]!.step), split });
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
                  {wholeNumber(step)} <span class="muted">of {wholeNumber(last.step)}</span>
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
                  onChange={(event) => onQuery({ step: String(step), split: event.currentTarget.value })}
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
            ) : (
              <StepSamples
                {...{ run, step, split }}
                chosen={query.get("sample")}
                onChoose={(place) => onQuery({ step: String(step), split, sample: String(place) })}
              />
            )}
          </>
        );
      }}
    </Answer>
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

function StepSamples({
  run,
  step,
  split,
  chosen,
  onChoose,
}: {
  readonly run: string;
  readonly step: number;
  readonly split: string;
  readonly chosen: string | null;
  readonly onChoose: (place: number) => void;
}) {
  const path = `step=${step}&split=${encodeURIComponent(split)}`;
  const asked = useAsked(
    (signal) => askJson<SampleList>(`runs/${run}/samples?${path}`, { signal }),
    [run, path],
  );
  return (
    <Answer asked={asked}>
      {({ samples, isCut, badLines }) => {
        const groups = grouped(samples);
        const shown = samples.find(({ place }) => String(place) === chosen) ?? groups[0]?.members[0];
        return (
          <div class="split">
            <nav class="card sample-list" aria-label="Samples by reward">
              {groups.map(({ group, members, mean }) => (
                <section key={group}>
                  <h2>
                    {members[0]?.reward === undefined ? "batch" : `group ${group}`}
                    {mean !== undefined && <span class="muted"> mean {shortNumber(mean)}</span>}
                    {members[0]?.tags.map((tag) => (
                      <span class="tag" key={tag}>
                        {tag}
                      </span>
                    ))}
                  </h2>
                  <ul>
                    {members.map((sample) => (
                      <li key={sample.place}>
                        <button
                          type="button"
                          class="quiet sample"
                          aria-current={sample === shown ? "true" : undefined}
                          onClick={() => onChoose(sample.place)}
                        >
                          <Reward value={sample.reward} />
                          <span>#{sample.index}</span>
                          <span class="note">
                            {sample.turnCount > 1 && `${sample.turnCount} turns, `}
                            {wholeNumber(sample.tokenCount)} tokens
                            {sample.stopReason !== undefined && `, ${sample.stopReason}`}
                          </span>
                        </button>
                      </li>
                    ))}
                  </ul>
                </section>
              ))}
              {isCut && <p class="note">There are more, which are not listed.</p>}
              {badLines > 0 && <p class="note warn">{wholeNumber(badLines)} lines could not be read.</p>}
              {samples.length === 0 && <p class="note">Nothing was kept of this step.</p>}
            </nav>
            {shown !== undefined && (
              <SampleDetails
                key={`${path} ${shown.place}`}
                path={`runs/${run}/samples/${shown.place}?${path}`}
              />
            )}
          </div>
        );
      }}
    </Answer>
  );
}

/** The best group first, and in it the best sample; without rewards as they stand. */
function grouped(samples: readonly SampleSummary[]) {
  const groups = new Map<number, SampleSummary[]>();
  for (const sample of samples) groups.set(sample.group, [...(groups.get(sample.group) ?? []), sample]);
  return [...groups]
    .map(([group, members]) => {
      const rewards = members.flatMap(({ reward }) => (typeof reward === "number" ? reward : []));
      return {
        group,
        members: members.toSorted((one, other) => (other.reward ?? 0) - (one.reward ?? 0)),
        mean:
          rewards.length === 0
            ? undefined
            : rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length,
      };
    })
    .sort((one, other) => (other.mean ?? 0) - (one.mean ?? 0));
}

function Reward({ value }: { readonly value: number | null | undefined }) {
  if (value === undefined) return null;
  return (
    <strong class={`reward ${value === null ? "" : value > 0 ? "good" : value < 0 ? "bad" : ""}`}>
      {shortNumber(value)}
    </strong>
  );
}

function SampleDetails({ path }: { readonly path: string }) {
  const asked = useAsked((signal) => askJson<Sample>(path, { signal }), [path]);
  return (
    <article class="sample-details">
      <Answer asked={asked}>{(sample) => <SampleContent sample={sample} />}</Answer>
    </article>
  );
}

function SampleContent({ sample }: { readonly sample: Sample }) {
  const tokens = sample.turns.flatMap((turn) => turn.tokens ?? []);
  const choices = coloringsOf(tokens);
  const [coloring, setColoring] = useState<Coloring>(
    choices.includes("advantage") ? "advantage" : choices[0]!,
  );
  const [isTable, setIsTable] = useState(false);
  return (
    <>
      <header class="bar">
        <h2>
          {sample.reward === undefined
            ? `Example ${sample.index}`
            : `Group ${sample.group}, episode ${sample.index}`}
        </h2>
        {sample.reward !== undefined && (
          <span>
            reward <Reward value={sample.reward} />
          </span>
        )}
        {sample.stopReason !== undefined && <span class="tag">{sample.stopReason}</span>}
        <Numbers values={sample.metrics} />
      </header>
      {sample.messages !== undefined && (
        <section class="card padded" aria-label="Conversation">
          <Conversation messages={sample.messages} />
        </section>
      )}
      {tokens.length > 0 && (
        <TokenControls {...{ choices, coloring, isTable }} onColoring={setColoring} onTable={setIsTable} />
      )}
      {sample.tokenProblem !== undefined && <p class="note warn">{sample.tokenProblem}</p>}
      {sample.turns.map((turn, place) => (
        <Turn
          key={place}
          turn={turn}
          title={
            sample.reward === undefined ? "What the model reads, and what it learns" : `Turn ${place + 1}`
          }
          {...{ coloring, isTable }}
        />
      ))}
    </>
  );
}

function Turn({
  turn,
  title,
  coloring,
  isTable,
}: {
  readonly turn: ShownTurn;
  readonly title: string;
  readonly coloring: Coloring;
  readonly isTable: boolean;
}) {
  const { observation, tokens } = turn;
  return (
    <section class="card padded turn">
      <div class="bar">
        <h3>{title}</h3>
        {turn.reward !== null && (
          <span class="note">
            reward <Reward value={turn.reward} />
          </span>
        )}
        {turn.observationLength !== undefined && (
          <span class="note">
            reads {wholeNumber(turn.observationLength)} tokens, says {wholeNumber(turn.actionLength ?? 0)}
          </span>
        )}
        <Numbers values={turn.metrics} />
      </div>
      {observation !== undefined && (
        <details class="plain">
          <summary>What the model read</summary>
          <Tokens tokens={observation} coloring="none" isTable={isTable} />
        </details>
      )}
      {tokens !== undefined && <Tokens {...{ tokens, coloring, isTable }} />}
      {tokens === undefined && turn.actionLength !== undefined && (
        <p class="note">The tokens of this turn were not kept.</p>
      )}
      {Object.entries(turn.logs).map(([name, text]) => (
        <div key={name}>
          <span class="note">{name}</span>
          <pre class="mono text">{text}</pre>
        </div>
      ))}
    </section>
  );
}

function Numbers({ values }: { readonly values: Readonly<Record<string, number | null>> }) {
  return (
    <>
      {Object.entries(values).map(([name, value]) => (
        <span class="note" key={name}>
          {name} <span class="number">{shortNumber(value)}</span>
        </span>
      ))}
    </>
  );
}

function Report({ run, step, name }: { readonly run: string; readonly step: number; readonly name: string }) {
  const path = `runs/${run}/reports/${encodeURIComponent(name)}?step=${step}`;
  const asked = useAsked((signal) => askJson<ReportNode>(path, { signal }), [path]);
  return <Answer asked={asked}>{(node) => <ReportPart node={node} depth={0} />}</Answer>;
}

function ReportPart({ node, depth }: { readonly node: ReportNode; readonly depth: number }) {
  const { title, text, messages, rows, children = [] } = node;
  const inner = children.map((child, place) => <ReportPart key={place} node={child} depth={depth + 1} />);
  if (messages !== undefined) return <Conversation messages={messages} />;
  if (text !== undefined) return <p class="text">{text}</p>;
  if (rows !== undefined) {
    return (
      <div class="table-frame">
        <table class="compact">
          <tbody>
            {rows.map((cells, row) => (
              <tr key={row}>
                {cells.map((cell, column) => (
                  <td key={column} class="text">
                    {cell}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    );
  }
  if (title === undefined) return <>{inner}</>;
  return (
    <details class={`plain ${depth <= 1 ? "card padded" : "nested"}`} open={depth < 3}>
      <summary>{title}</summary>
      <div class="report-body">{inner}</div>
    </details>
  );
}
