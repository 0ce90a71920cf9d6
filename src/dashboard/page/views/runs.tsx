import { useEffect, useState } from "preact/hooks";
import type { RunSummary } from "../../api.js";
import type { ViewProps } from "../app.js";
import { age, shortNumber, wholeNumber } from "../format.js";
import { runList } from "../live.js";
import { Command, Empty } from "../parts/pieces.js";
import { linkTo } from "../route.js";
import { useStore } from "../store.js";

/** So many can be told apart in one picture. */
export const MAX_COMPARED = 8;

type SortKey = "name" | "model" | "state" | "step" | "headline" | "updatedAt";

const COLUMNS: readonly { key: SortKey; title: string; class?: string }[] = [
  { key: "name", title: "Run" },
  { key: "model", title: "Model", class: "wide" },
  { key: "state", title: "State" },
  { key: "step", title: "Step", class: "number wide" },
  { key: "headline", title: "Newest", class: "number" },
  { key: "updatedAt", title: "Written", class: "number wide" },
];

/** Every run of the folders; some are chosen and compared. */
export function RunsView({ route }: ViewProps) {
  const list = useStore(runList);
  const [filter, setFilter] = useState("");
  const [sort, setSort] = useState<{ key: SortKey; isDown: boolean }>({ key: "updatedAt", isDown: true });
  const [chosen, setChosen] = useState<readonly string[]>(() => route.query.getAll("run"));
  useSecondHand();
  if (list === undefined) return <p role="status">Looking for runs…</p>;
  if (list.runs.length === 0) {
    return (
      <Empty title="No runs yet">
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
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = list.runs
    .filter((run) =>
      words.every((word) => `${run.name} ${run.model ?? ""} ${run.state}`.toLowerCase().includes(word)),
    )
    .toSorted((one, other) => compare(one, other, sort.key) * (sort.isDown ? -1 : 1));
  const toggle = (id: string) =>
    setChosen(chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen, id]);
  const present = chosen.filter((id) => list.runs.some((run) => run.id === id));
  return (
    <>
      <div class="bar">
        <label>
          Filter
          <input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        </label>
        <span class="muted" role="status">
          {shown.length === list.runs.length
            ? `${wholeNumber(shown.length)} ${shown.length === 1 ? "run" : "runs"}`
            : `${wholeNumber(shown.length)} of ${wholeNumber(list.runs.length)} runs`}
          {list.isCut && ", and more folders than are looked through"}
        </span>
        <span class="end bar">
          {present.length > 0 && (
            <button type="button" class="quiet" onClick={() => setChosen([])}>
              Choose none
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
      <div class="card table-frame">
        <table>
          <caption class="visually-hidden">Runs of {list.folders.join(", ")}</caption>
          <thead>
            <tr>
              <th>
                <span class="visually-hidden">Compare</span>
              </th>
              {COLUMNS.map(({ key, title, class: className }) => (
                <th
                  key={key}
                  class={className}
                  aria-sort={sort.key === key ? (sort.isDown ? "descending" : "ascending") : undefined}
                >
                  <button
                    type="button"
                    class="sort"
                    onClick={() => setSort({ key, isDown: sort.key === key ? !sort.isDown : key !== "name" })}
                  >
                    {title}
                    {sort.key === key && <span aria-hidden="true">{sort.isDown ? " ↓" : " ↑"}</span>}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((run) => (
              <Row
                key={run.id}
                run={run}
                isChosen={chosen.includes(run.id)}
                isFull={present.length >= MAX_COMPARED}
                onToggle={() => toggle(run.id)}
              />
            ))}
          </tbody>
        </table>
        {shown.length === 0 && <p class="empty">No run matches “{filter}”.</p>}
      </div>
    </>
  );
}

function Row({
  run,
  isChosen,
  isFull,
  onToggle,
}: {
  readonly run: RunSummary;
  readonly isChosen: boolean;
  readonly isFull: boolean;
  readonly onToggle: () => void;
}) {
  const { headline, progress } = run;
  return (
    <tr>
      <td>
        <input
          type="checkbox"
          aria-label={`Compare ${run.name}`}
          checked={isChosen}
          disabled={isFull && !isChosen}
          onChange={onToggle}
        />
      </td>
      <th scope="row" class="run-name">
        <a href={linkTo("curves", { run: run.id })} title={run.folder}>
          {run.name}
        </a>
      </th>
      <td class="wide text">{run.model ?? <span class="muted">unknown</span>}</td>
      <td>
        <span class={`state ${run.state}`}>{run.state}</span>
      </td>
      <td class="number wide">
        {run.state === "running" && progress !== undefined && (
          <progress value={progress} aria-label={`${Math.round(progress * 100)} % done`} />
        )}{" "}
        {run.step === undefined ? "" : wholeNumber(run.step)}
      </td>
      <td class="number headline">
        {headline && (
          <>
            {shortNumber(headline.value)}
            <br />
            <span class="note">{headline.name}</span>
          </>
        )}
      </td>
      <td class="number wide">
        <time
          dateTime={new Date(run.updatedAt).toISOString()}
          title={new Date(run.updatedAt).toLocaleString()}
        >
          {age(run.updatedAt)}
        </time>
      </td>
    </tr>
  );
}

function compare(one: RunSummary, other: RunSummary, key: SortKey): number {
  const keyOf = (run: RunSummary) => (key === "headline" ? (run.headline?.value ?? undefined) : run[key]);
  const [first, second] = [keyOf(one), keyOf(other)];
  if (first === undefined || second === undefined)
    return Number(first !== undefined) - Number(second !== undefined);
  return typeof first === "number" && typeof second === "number"
    ? first - second
    : String(first).localeCompare(String(second));
}

/** Ages go on while nothing else changes. */
function useSecondHand(): void {
  const [, setCount] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setCount((count) => count + 1), 10_000);
    return () => clearInterval(timer);
  }, []);
}
