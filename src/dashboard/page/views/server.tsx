import { useEffect } from "preact/hooks";
import type { ServerAnswer } from "../../api.js";
import { age, bytes, durationLabel, shortNumber, wholeNumberText } from "../format.js";
import { Command, Empty, Loaded, ProblemNote } from "../parts/pieces.js";
import { askJson } from "../server.js";
import { useAsked } from "../store.js";

const LOOK_MS = 1000;

/** State of the server: queues, speed and memory of the built-in one, lists and usage of any. */
export function ServerView() {
  const asked = useAsked((signal) => askJson<ServerAnswer>("server", { signal }), []);
  // Asking again drops the question before, which a server that is gone answers late.
  useEffect(() => {
    if (asked.isLoading) return;
    const timer = setInterval(() => !document.hidden && asked.again(), LOOK_MS);
    return () => clearInterval(timer);
  }, [asked.isLoading]);
  return (
    <Loaded asked={asked}>
      {(answer) =>
        answer.server === undefined ? (
          <Empty title="No server">
            <p>
              Start the dashboard with <Command>--base-url</Command> or an API key, or open the page of{" "}
              <Command>npx tinkerts serve</Command>.
            </p>
          </Empty>
        ) : (
          <ServerState {...answer} address={answer.server.address} />
        )
      }
    </Loaded>
  );
}

function ServerState({
  address,
  problem,
  models,
  activity,
  sessions,
  usage,
}: ServerAnswer & { readonly address: string }) {
  // What could not be asked is not empty.
  const ifEmpty = (text: string) => (problem === undefined ? text : undefined);
  return (
    <>
      <div class="bar">
        <h2 class="text">{address}</h2>
        {activity && <span class="muted">up for {durationLabel(activity.upSeconds)}</span>}
      </div>
      <ProblemNote text={problem} />
      {activity && (
        <>
          <dl class="facts">
            <Fact
              title="training requests"
              value={wholeNumberText(activity.trainingRequests)}
              note="running or waiting"
            />
            <Fact
              title="sequences"
              value={wholeNumberText(activity.sequences)}
              note="being sampled or waiting"
            />
            <Fact
              title="trained"
              value={wholeNumberText(activity.trainedTokensPerSecond)}
              note="tokens a second"
            />
            <Fact
              title="sampled"
              value={wholeNumberText(activity.sampledTokensPerSecond)}
              note="tokens a second"
            />
            <Fact title="memory" value={bytes(activity.memoryBytes)} note="of the process" />
          </dl>
          <Table
            title="Runs being trained"
            empty="Nothing is being trained."
            head={["Run", "Model", "Rank", "Steps", "Loss"]}
          >
            {activity.runs.map(({ name, baseModel, rank, steps, loss }) => [
              name,
              baseModel,
              rank,
              steps,
              loss === undefined ? "" : shortNumber(loss),
            ])}
          </Table>
        </>
      )}
      <Table title="Models" empty={ifEmpty("The server names no models.")} head={["Model", "Context length"]}>
        {models.map(({ name, maxLength }) => [
          name,
          maxLength === undefined ? "" : `${wholeNumberText(maxLength)} tokens`,
        ])}
      </Table>
      <Table
        title="Latest sessions"
        empty={ifEmpty("There were no sessions.")}
        head={["Session", "State", "Started", "Checkpoints"]}
      >
        {sessions.map(({ id, name, state, createdAt, checkpoints }) => [
          name === "" ? id : name,
          state.replaceAll("_", " "),
          age(Date.parse(createdAt)),
          checkpoints,
        ])}
      </Table>
      <Table
        title="Used in the last day"
        empty={ifEmpty("Nothing was used.")}
        head={["Type", "Model", "Amount", "Cost"]}
      >
        {usage.map(({ what, model, amount, unit, costUsd }) => [
          what,
          model,
          `${unit === "GB hours" ? amount.toFixed(2) : wholeNumberText(amount)} ${unit}`,
          costUsd === undefined ? "" : `$${costUsd.toFixed(2)}`,
        ])}
      </Table>
    </>
  );
}

function Fact({
  title,
  value,
  note,
}: {
  readonly title: string;
  readonly value: string;
  readonly note: string;
}) {
  return (
    <div class="card padded">
      <dt class="note">{title}</dt>
      <dd>
        <span class="big">{value}</span> <span class="note">{note}</span>
      </dd>
    </div>
  );
}

function Table({
  title,
  empty,
  head,
  children,
}: {
  readonly title: string;
  /** Shown where there are no rows; without it nothing is shown then. */
  readonly empty: string | undefined;
  readonly head: readonly string[];
  readonly children: readonly (readonly (string | number)[])[];
}) {
  if (children.length === 0 && empty === undefined) return null;
  // A column without values is not shown.
  const columns = head.map((_, column) => children.some((row) => row[column] !== ""));
  return (
    <section class="card padded" aria-label={title}>
      <h2>{title}</h2>
      {children.length === 0 ? (
        <p class="note">{empty}</p>
      ) : (
        <div class="table-frame">
          <table class="compact">
            <thead>
              <tr>{head.map((name, column) => columns[column] && <th key={name}>{name}</th>)}</tr>
            </thead>
            <tbody>
              {children.map((row, place) => (
                <tr key={place}>
                  {row.map(
                    (cell, column) =>
                      columns[column] && (
                        <td key={head[column]} class={column === 0 ? "text" : ""}>
                          {typeof cell === "number" ? wholeNumberText(cell) : cell}
                        </td>
                      ),
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
