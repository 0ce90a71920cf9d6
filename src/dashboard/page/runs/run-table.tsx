import { useState } from "preact/hooks";
import type { RunSummary } from "../../api.js";
import { age, durationLabel, shortNumber, wholeNumberText } from "../format.js";
import { SmallCurve } from "../parts/small-curve.js";
import { WarningSign } from "../parts/warnings.js";
import { linkTo } from "../route.js";
import { NotesButton } from "./notes-dialog.js";
import { dollars, fieldOf, progressText } from "./run-fields.js";
import type { RunGroup } from "./run-groups.js";

/** Properties of the table. */
export interface RunTableProps {
  readonly caption: string;
  /** One group without a title, or several. */
  readonly groups: readonly RunGroup[];
  readonly isGrouped: boolean;
  /** Settings that have a column. */
  readonly settings: readonly string[];
  readonly hasCost: boolean;
  readonly sort: string;
  readonly isDown: boolean;
  readonly onSort: (key: string) => void;
  readonly chosen: readonly string[];
  readonly isFull: boolean;
  readonly onToggle: (id: string) => void;
  readonly isReadOnly: boolean;
}

/** Runs as rows, with a small curve, their results and the chosen settings. */
export function RunTable(props: RunTableProps) {
  const { caption, groups, isGrouped, settings, hasCost } = props;
  const [closed, setClosed] = useState<readonly string[]>([]);
  const columns = [
    ...["name", "model", "state", "curve", "steps", "last", "best", "started", "duration"],
    ...(hasCost ? ["cost"] : []),
    ...settings,
    "updated",
  ];
  return (
    <table class="rows runs">
      <caption class="visually-hidden">{caption}</caption>
      <thead>
        <tr>
          <th>
            <span class="visually-hidden">Compare</span>
          </th>
          {columns.map((key) => (
            <Head key={key} name={key} {...props} />
          ))}
          <th>
            <span class="visually-hidden">Tags and note</span>
          </th>
        </tr>
      </thead>
      {groups.map((group) => {
        const isOpen = !closed.includes(group.key);
        return (
          <tbody key={group.key}>
            {isGrouped && (
              <GroupHead
                group={group}
                span={columns.length + 2}
                isOpen={isOpen}
                onOpen={() =>
                  setClosed(isOpen ? [...closed, group.key] : closed.filter((key) => key !== group.key))
                }
              />
            )}
            {isOpen && group.runs.map((run) => <Row key={run.id} run={run} {...props} />)}
          </tbody>
        );
      })}
    </table>
  );
}

function Head({
  name,
  sort,
  isDown,
  onSort,
}: { readonly name: string } & Pick<RunTableProps, "sort" | "isDown" | "onSort">) {
  if (name === "curve") return <th>Curve</th>;
  const { title } = fieldOf(name);
  const isSorted = sort === name;
  return (
    <th
      class={name === "model" || name === "updated" ? "roomy" : undefined}
      aria-sort={isSorted ? (isDown ? "descending" : "ascending") : undefined}
    >
      <button type="button" class="sort" onClick={() => onSort(name)}>
        {title}
        {isSorted && <span aria-hidden="true">{isDown ? " ↓" : " ↑"}</span>}
      </button>
    </th>
  );
}

function GroupHead({
  group: { title, runs, best },
  span,
  isOpen,
  onOpen,
}: {
  readonly group: RunGroup;
  readonly span: number;
  readonly isOpen: boolean;
  readonly onOpen: () => void;
}) {
  return (
    <tr class="group-row">
      <th colSpan={span} scope="rowgroup">
        <button type="button" class="quiet" aria-expanded={isOpen} onClick={onOpen}>
          <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> {title}
        </button>{" "}
        <span class="note">
          {wholeNumberText(runs.length)} {runs.length === 1 ? "run" : "runs"}
          {best && `, best ${best.metric} ${shortNumber(best.value)}`}
        </span>
      </th>
    </tr>
  );
}

function Row({
  run,
  settings,
  hasCost,
  chosen,
  isFull,
  onToggle,
  isReadOnly,
}: { readonly run: RunSummary } & RunTableProps) {
  const { headline, best, progress } = run;
  const isChosen = chosen.includes(run.id);
  return (
    <tr>
      <td>
        <input
          type="checkbox"
          aria-label={`Compare ${run.name}`}
          checked={isChosen}
          disabled={isFull && !isChosen}
          onChange={() => onToggle(run.id)}
        />
      </td>
      <th scope="row" class="run-name">
        <a class="run-link" href={linkTo("curves", { run: run.id })} title={run.folder}>
          {run.name}
        </a>
        <WarningSign run={run} />
        {run.tags.map((tag) => (
          <span class="tag" key={tag}>
            {tag}
          </span>
        ))}
        {run.note !== "" && (
          <div class="note run-note" title={run.note}>
            {run.note}
          </div>
        )}
      </th>
      <td class="model-name roomy" data-label="Model">
        {run.model ?? <span class="muted">unknown</span>}
      </td>
      <td data-label="State">
        <span class={`state ${run.state}`}>{run.state}</span>
      </td>
      <td data-label="Curve">
        <SmallCurve values={run.curve} />
      </td>
      <td class="nowrap" data-label="Steps">
        {progressText(run)}
        {run.state === "running" && progress !== undefined && (
          <progress value={progress} aria-label={`${Math.round(progress * 100)} % done`} />
        )}
      </td>
      <td class="measure" data-label="Last">
        {headline && (
          <>
            {shortNumber(headline.value)}
            <span class="note">{headline.name}</span>
          </>
        )}
      </td>
      <td class="measure" data-label="Best">
        {best && (
          <>
            {shortNumber(best.value)}
            <span class="note">
              {best.metric} at step {wholeNumberText(best.step)}
            </span>
          </>
        )}
      </td>
      <td class="nowrap" data-label="Started">
        {run.startedAt !== undefined && <Moment at={run.startedAt} />}
      </td>
      <td class="nowrap" data-label="Duration">
        {run.seconds !== undefined && durationLabel(run.seconds)}
      </td>
      {hasCost && <td data-label="Cost">{run.costUsd !== undefined && dollars(run.costUsd)}</td>}
      {settings.map((name) => {
        const field = fieldOf(name);
        const value = field.value(run);
        return (
          <td key={name} class="setting" data-label={name}>
            {value !== undefined && field.text(value)}
          </td>
        );
      })}
      <td class="nowrap roomy" data-label="Updated">
        <Moment at={run.updatedAt} />
      </td>
      <td class="nowrap">{!isReadOnly && <NotesButton run={run} />}</td>
    </tr>
  );
}

function Moment({ at }: { readonly at: number }) {
  const date = new Date(at);
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()}>
      {age(at)}
    </time>
  );
}
