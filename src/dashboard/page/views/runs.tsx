import { useEffect, useMemo, useState } from "preact/hooks";
import type { RunSummary } from "../../api.js";
import type { ViewProps } from "../app.js";
import { wholeNumberText } from "../format.js";
import { runList } from "../live.js";
import { Command, Empty, ProblemNote } from "../parts/pieces.js";
import { linkTo } from "../route.js";
import { chosenDifferently, columnsOfSweeps, compareBy, fieldOf, settingNames } from "../runs/run-fields.js";
import { filterRuns } from "../runs/run-filter.js";
import { groupRuns } from "../runs/run-groups.js";
import { ParallelPlot, ScatterPlot } from "../runs/run-plots.js";
import { RunTable } from "../runs/run-table.js";
import { type RunsLook, readLook, showLook } from "../runs/runs-view-state.js";
import { useStore } from "../store.js";

/** Most curves that can be distinguished in one picture. */
export const MAX_COMPARED = 8;

const SORTS = ["updated", "name", "state", "steps", "last", "best", "started", "duration", "cost"];

/** Every run of the folders: searched, grouped, compared in a table and in plots. */
export function RunsView({ route, info }: ViewProps) {
  const list = useStore(runList);
  const text = route.query.toString();
  const look = useMemo(() => readLook(route.query), [text]);
  const change = (part: Partial<RunsLook>) => showLook({ ...look, ...part });
  useSecondHand();
  if (list === undefined) return <p role="status">Loading the runs…</p>;
  const problems = list.problems.map((problem) => <ProblemNote key={problem} text={problem} />);
  if (list.runs.length === 0) {
    return (
      <Empty title={list.problems.length > 0 ? "Nothing could be read" : "No runs yet"}>
        {problems}
        <p>
          Looked in <span class="mono text">{list.folders.join(", ")}</span>
        </p>
        <p>
          A run is a folder with a <Command>metrics.jsonl</Command>.{" "}
          <Command>npx tinkerts train sft chats.jsonl</Command> makes one; it appears here as soon as it
          begins.
        </p>
      </Empty>
    );
  }
  const shown = filterRuns(list.runs, look.search).toSorted(compareBy(fieldOf(look.sort), look.isDown));
  const settings = look.columns ?? columnsOfSweeps(shown);
  const group = look.group ?? (list.runs.some(({ sweep }) => sweep) ? "sweep" : "");
  const groups =
    group === "" ? [{ key: "", title: "", runs: shown, best: undefined }] : groupRuns(shown, group);
  const present = look.chosen.filter((id) => list.runs.some((run) => run.id === id));
  const toggle = (id: string) =>
    change({ chosen: present.includes(id) ? present.filter((other) => other !== id) : [...present, id] });
  return (
    <>
      {problems}
      <div class="bar">
        <label class="search">
          Search
          <input
            type="search"
            placeholder="words, rank=8, best<0.5"
            value={look.search}
            onInput={(event) => change({ search: event.currentTarget.value })}
          />
        </label>
        <GroupSelect runs={list.runs} group={group} onChange={(name) => change({ group: name })} />
        <label class="narrow">
          Sort
          <select
            value={look.sort}
            onChange={(event) =>
              change({ sort: event.currentTarget.value, isDown: event.currentTarget.value !== "name" })
            }
          >
            {[...new Set([...SORTS, look.sort])].map((name) => (
              <option key={name} value={name}>
                {fieldOf(name).title}
              </option>
            ))}
          </select>
        </label>
        <label>
          Show
          <select
            value={look.show}
            onChange={(event) => change({ show: event.currentTarget.value as RunsLook["show"] })}
          >
            <option value="table">table</option>
            <option value="scatter">scatter plot</option>
            <option value="parallel">parallel coordinates</option>
          </select>
        </label>
        <SettingColumns runs={shown} columns={settings} onChange={(columns) => change({ columns })} />
        <span class="muted" role="status">
          {shown.length === list.runs.length
            ? `${wholeNumberText(shown.length)} ${shown.length === 1 ? "run" : "runs"}`
            : `${wholeNumberText(shown.length)} of ${wholeNumberText(list.runs.length)} runs`}
          {list.isCut && ", and more folders than are searched"}
        </span>
        <span class="end bar">
          {present.length > 0 && (
            <button type="button" class="quiet" onClick={() => change({ chosen: [] })}>
              Clear selection
            </button>
          )}
          <button
            type="button"
            class="primary"
            disabled={present.length < 2}
            onClick={() => {
              location.hash = linkTo("curves", { run: present });
            }}
          >
            {present.length < 2 ? "Compare" : `Compare ${present.length}`}
          </button>
        </span>
      </div>
      {shown.length === 0 && <Empty title="No run matches">Change or clear the search.</Empty>}
      {shown.length > 0 && look.show === "scatter" && (
        <ScatterPlot runs={shown} x={look.x} y={look.y} onAxes={change} />
      )}
      {shown.length > 0 && look.show === "parallel" && <ParallelPlot runs={shown} />}
      {shown.length > 0 && (
        <div class="card table-frame">
          <RunTable
            caption={`Runs of ${list.folders.join(", ")}`}
            {...{ groups, settings, sort: look.sort, isDown: look.isDown }}
            isGrouped={group !== ""}
            hasCost={list.runs.some(({ costUsd = 0 }) => costUsd > 0)}
            onSort={(key) => change({ sort: key, isDown: look.sort === key ? !look.isDown : key !== "name" })}
            chosen={present}
            isFull={present.length >= MAX_COMPARED}
            onToggle={toggle}
            isReadOnly={info.isReadOnly}
          />
        </div>
      )}
    </>
  );
}

function GroupSelect({
  runs,
  group,
  onChange,
}: {
  readonly runs: readonly RunSummary[];
  readonly group: string;
  readonly onChange: (group: string) => void;
}) {
  const settings = [...new Set([...columnsOfSweeps(runs), ...chosenDifferently(runs)])];
  return (
    <label>
      Group by
      <select class="short" value={group} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">nothing</option>
        {["sweep", "tag", "model", "state"].map((name) => (
          <option key={name}>{name}</option>
        ))}
        <optgroup label="Settings">
          {[...new Set([...settings, ...(/^(?:|sweep|tag|model|state)$/.test(group) ? [] : [group])])].map(
            (name) => (
              <option key={name}>{name}</option>
            ),
          )}
        </optgroup>
      </select>
    </label>
  );
}

/** Settings that have a column of their own. */
function SettingColumns({
  runs,
  columns,
  onChange,
}: {
  readonly runs: readonly RunSummary[];
  readonly columns: readonly string[];
  readonly onChange: (columns: readonly string[]) => void;
}) {
  const [isOpen, setIsOpen] = useState(false);
  const differing = isOpen ? chosenDifferently(runs) : [];
  const names = isOpen ? [...new Set([...columns, ...differing, ...settingNames(runs)])] : [];
  return (
    <details class="menu" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>Settings as columns{columns.length > 0 && ` (${columns.length})`}</summary>
      <div class="card padded menu-body">
        <span class="bar">
          <button type="button" class="small" onClick={() => onChange(differing)}>
            Only those that differ
          </button>
          <button type="button" class="small" onClick={() => onChange([])}>
            None
          </button>
        </span>
        {names.map((name) => (
          <label key={name} class="choice">
            <input
              type="checkbox"
              checked={columns.includes(name)}
              onChange={() =>
                onChange(
                  columns.includes(name) ? columns.filter((other) => other !== name) : [...columns, name],
                )
              }
            />
            <span class="text">{name}</span>
          </label>
        ))}
      </div>
    </details>
  );
}

/** Ages go on while nothing else changes. */
function useSecondHand(): void {
  const [, setCount] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setCount((count) => count + 1), 10_000);
    return () => clearInterval(timer);
  }, []);
}
