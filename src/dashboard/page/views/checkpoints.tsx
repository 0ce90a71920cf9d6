import { useRef, useState } from "preact/hooks";
import type { CheckpointList, ShownCheckpoint } from "../../api.js";
import type { ViewProps } from "../app.js";
import { age, bytes, durationLabel, wholeNumberText } from "../format.js";
import { runList } from "../live.js";
import { Empty, Loaded, ProblemNote } from "../parts/pieces.js";
import { linkTo } from "../route.js";
import { askJson } from "../server.js";
import { problemOf, useAsked, useStore } from "../store.js";

const DAY_SECONDS = 86_400;
const EXPIRIES = [
  ["in 1 day", DAY_SECONDS],
  ["in 7 days", 7 * DAY_SECONDS],
  ["in 30 days", 30 * DAY_SECONDS],
  ["never", null],
] as const;

/** The checkpoints of the chosen runs, or of all, with what the server says of them. */
export function CheckpointsView({ route, info }: ViewProps) {
  const list = useStore(runList);
  const runs = route.query.getAll("run");
  const counts = list?.runs.map(({ checkpoints }) => checkpoints).join();
  const [filter, setFilter] = useState("");
  const query = new URLSearchParams(runs.map((run) => ["run", run])).toString();
  const asked = useAsked(
    (signal) => askJson<CheckpointList>(`checkpoints?${query}`, { signal }),
    [query, counts],
  );
  const nameOf = (run: string | undefined) => list?.runs.find(({ id }) => id === run)?.name;
  return (
    <Loaded asked={asked}>
      {({ checkpoints, server, problem, isCut }) => {
        const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
        const shown = checkpoints
          .filter(({ path, name, run }) =>
            words.every((word) => `${path} ${name} ${nameOf(run) ?? ""}`.toLowerCase().includes(word)),
          )
          .toSorted((one, other) => (other.server?.time ?? "").localeCompare(one.server?.time ?? ""));
        return (
          <>
            <div class="bar">
              <label>
                Filter
                <input
                  type="search"
                  value={filter}
                  onInput={(event) => setFilter(event.currentTarget.value)}
                />
              </label>
              <span class="muted" role="status">
                {wholeNumberText(shown.length)} {shown.length === 1 ? "checkpoint" : "checkpoints"}
                {runs.length > 0 &&
                  ` of ${runs.map((run) => nameOf(run) ?? "a run that is gone").join(", ")}`}
                {isCut && ", and more on the server"}
              </span>
              {runs.length > 0 && <a href={linkTo("checkpoints")}>of all runs</a>}
            </div>
            <ProblemNote
              text={problem === undefined ? undefined : `The server could not be asked: ${problem}`}
            />
            {server === undefined && (
              <p class="note">
                This dashboard knows no server, so sizes and expiries are unknown. Start it with --base-url or
                an API key.
              </p>
            )}
            {shown.length === 0 ? (
              <Empty title={filter === "" ? "No checkpoints yet" : "No checkpoint matches"} />
            ) : (
              <div class="card table-frame">
                <table class="rows">
                  <caption class="visually-hidden">Checkpoints</caption>
                  <thead>
                    <tr>
                      <th>Checkpoint</th>
                      <th>Type</th>
                      <th>Run</th>
                      <th class="number">Size</th>
                      <th>Saved</th>
                      <th>Expires</th>
                      <th>
                        <span class="visually-hidden">Actions</span>
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {shown.map((checkpoint) => (
                      <Row
                        key={checkpoint.path}
                        checkpoint={checkpoint}
                        run={nameOf(checkpoint.run)}
                        isReadOnly={info.isReadOnly}
                        hasServer={server !== undefined && problem === undefined}
                        onChanged={asked.again}
                      />
                    ))}
                  </tbody>
                </table>
              </div>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

function Row({
  checkpoint,
  run,
  isReadOnly,
  hasServer,
  onChanged,
}: {
  readonly checkpoint: ShownCheckpoint;
  readonly run: string | undefined;
  readonly isReadOnly: boolean;
  readonly hasServer: boolean;
  readonly onChanged: () => void;
}) {
  const { path, kind, name, step, isFinal, note, server } = checkpoint;
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const act = (action: string, body: object) =>
    askJson<{ address?: string }>(`checkpoints/${action}`, {
      method: "POST",
      body: JSON.stringify(body),
    }).then(
      (answer) => {
        setProblem(undefined);
        return answer;
      },
      (error: unknown) => {
        setProblem(problemOf(error));
        return undefined;
      },
    );
  return (
    <tr>
      <th scope="row">
        {name} {isFinal && name !== "final" && <span class="tag">final</span>}{" "}
        {server?.isPublic && <span class="tag">published</span>}
        <div class="note">
          {step !== undefined && `after step ${wholeNumberText(step)}`}
          {note !== undefined && ` ${note}`}
        </div>
        <div class="mono muted path" title={path}>
          {path}
        </div>
        <ProblemNote text={problem} />
      </th>
      <td data-label="Type">{{ training: "training", sampler: "sampling" }[kind as string] ?? kind}</td>
      <td class="text" data-label="Run">
        {run}
      </td>
      <td class="number nowrap" data-label="Size">
        {typeof server?.sizeBytes === "number" && bytes(server.sizeBytes)}
      </td>
      <td class="nowrap" data-label="Saved">
        {server && <time dateTime={server.time}>{age(Date.parse(server.time))}</time>}
      </td>
      <td class="nowrap" data-label="Expires" title={server?.expiresAt ?? undefined}>
        {expiry(checkpoint, hasServer)}
      </td>
      <td>
        <div class="actions">
          <CopyButton text={path} />
          {server !== undefined && (
            <>
              {kind === "sampler" && !isReadOnly && (
                <a class="button small" href={linkTo("playground", { model: path })}>
                  Chat
                </a>
              )}
              <button
                type="button"
                class="small"
                onClick={async () => {
                  const answer = await act("download", { path });
                  if (answer?.address !== undefined) location.assign(answer.address);
                }}
              >
                Download
              </button>
              {!isReadOnly && (
                <>
                  <select
                    aria-label={`Let ${name} expire`}
                    value=""
                    onChange={async (event) => {
                      const ttlSeconds = EXPIRIES[Number(event.currentTarget.value)]![1];
                      event.currentTarget.value = "";
                      if ((await act("expiry", { path, ttlSeconds })) !== undefined) onChanged();
                    }}
                  >
                    <option value="" disabled>
                      Expire…
                    </option>
                    {EXPIRIES.map(([title], place) => (
                      <option key={title} value={place}>
                        {title}
                      </option>
                    ))}
                  </select>
                  <DeleteButton
                    name={path.slice(path.lastIndexOf("/") + 1)}
                    path={path}
                    onDelete={async (typed) => {
                      if ((await act("delete", { path, name: typed })) !== undefined) onChanged();
                    }}
                  />
                </>
              )}
            </>
          )}
        </div>
      </td>
    </tr>
  );
}

function expiry({ server }: ShownCheckpoint, hasServer: boolean): string {
  if (server === undefined) return hasServer ? "gone" : "";
  if (server.expiresAt === null || server.expiresAt === undefined) return "never";
  return `in ${durationLabel(Math.max(0, (Date.parse(server.expiresAt) - Date.now()) / 1000))}`;
}

function CopyButton({ text }: { readonly text: string }) {
  const [isCopied, setIsCopied] = useState(false);
  return (
    <button
      type="button"
      class="small"
      onClick={() =>
        void navigator.clipboard.writeText(text).then(() => {
          setIsCopied(true);
          setTimeout(() => setIsCopied(false), 2000);
        })
      }
    >
      {isCopied ? "Copied" : "Copy path"}
    </button>
  );
}

/** Asks for the name: what is deleted cannot be brought back. */
function DeleteButton({
  name,
  path,
  onDelete,
}: {
  readonly name: string;
  readonly path: string;
  readonly onDelete: (typed: string) => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  return (
    <>
      <button type="button" class="small danger" onClick={() => dialog.current?.showModal()}>
        Delete
      </button>
      <dialog ref={dialog} aria-label={`Delete ${name}`} onClose={() => setTyped("")}>
        <form
          class="form"
          method="dialog"
          onSubmit={(event) => {
            event.preventDefault();
            dialog.current?.close();
            onDelete(typed);
          }}
        >
          <h2>Delete {name}?</h2>
          <p class="mono text">{path}</p>
          <p>It cannot be brought back.</p>
          <label>
            Type <strong>{name}</strong> to delete it
            <input
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
              autocomplete="off"
            />
          </label>
          <div class="bar">
            <button type="submit" class="danger" disabled={typed !== name}>
              Delete for good
            </button>
            <button type="button" onClick={() => dialog.current?.close()}>
              Keep it
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}
