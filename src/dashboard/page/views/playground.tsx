import { useEffect, useRef, useState } from "preact/hooks";
import type { CheckpointList, ServerAnswer } from "../../api.js";
import type { ViewProps } from "../app.js";
import { runList } from "../live.js";
import { Command, Empty, Loaded, ProblemNote } from "../parts/pieces.js";
import { type Coloring, TokenControls } from "../parts/tokens.js";
import { askModel } from "../playground/ask-models.js";
import {
  branch,
  type Chat,
  MAX_COLUMNS,
  newChat,
  newReply,
  promptMessages,
  type Reply,
  runningReplies,
  withAnotherReply,
  withChosen,
  withQuestion,
  withReply,
} from "../playground/chat.js";
import { type ModelChoices, ModelColumn } from "../playground/column.js";
import { forget, keep, keptChats } from "../playground/kept-chats.js";
import { playgroundSettings, SettingsFields } from "../playground/settings.js";
import { askJson } from "../server.js";
import { useAsked, useStore } from "../store.js";

/** Conversations with up to four models side by side. */
export function PlaygroundView({ route, info }: ViewProps) {
  const runs = useStore(runList)?.runs ?? [];
  const asked = useAsked(async (signal) => {
    const [{ models, problem }, { checkpoints }] = await Promise.all([
      askJson<ServerAnswer>("server", { signal }),
      askJson<CheckpointList>("checkpoints", { signal }),
    ]);
    const samplers = checkpoints
      .filter(({ kind, server: state }) => kind === "sampler" && state !== undefined)
      .toSorted((one, other) => other.server!.time.localeCompare(one.server!.time));
    return { base: models.map(({ name }) => name), samplers, problem };
  }, []);
  if (info.isReadOnly)
    return (
      <Empty title="Read-only">This dashboard was started with --read-only, so nothing is sampled.</Empty>
    );
  if (info.server === undefined) {
    return (
      <Empty title="No server">
        <p>
          Models answer where there is a server: start the dashboard with <Command>--base-url</Command> or an
          API key.
        </p>
      </Empty>
    );
  }
  const { address } = info.server;
  return (
    <Loaded asked={asked}>
      {({ base, samplers, problem }) => {
        if (base.length + samplers.length === 0) {
          return (
            <Empty title="The server does not answer">
              <p>
                No models of <span class="mono text">{address}</span> could be listed.
              </p>
              <ProblemNote text={problem} />
              <button type="button" onClick={asked.again}>
                Try again
              </button>
            </Empty>
          );
        }
        const runOf = (id: string | undefined) => runs.find((run) => run.id === id)?.name;
        const checkpoints = samplers.map(({ path, run, name }) => ({
          path,
          title: [runOf(run) ?? path.replace(/^tinker:\/\/|\/.*/g, ""), name].join(" · "),
        }));
        return <Playground models={{ base, checkpoints }} first={route.query.get("model") ?? undefined} />;
      }}
    </Loaded>
  );
}

function Playground({
  models,
  first,
}: {
  readonly models: ModelChoices;
  readonly first: string | undefined;
}) {
  const { base, checkpoints } = models;
  const kept = useStore(keptChats);
  const [chat, setChat] = useState<Chat>(() =>
    newChat([first ?? checkpoints[0]?.path ?? base[0]!, base[0] ?? checkpoints[0]!.path]),
  );
  const [question, setQuestion] = useState("");
  const [coloring, setColoring] = useState<Coloring>("logprob");
  const [isTable, setIsTable] = useState(false);
  /** Ends the sampling of each reply. */
  const running = useRef(new Map<string, AbortController>());
  const stop = (ids: Iterable<string>) => {
    for (const id of ids) running.current.get(id)?.abort();
  };
  useEffect(() => () => stop(running.current.keys()), []);
  const isRunning = runningReplies(chat).length > 0;
  useEffect(() => {
    if (!isRunning) keep(chat);
  }, [chat, isRunning]);

  /** Shows another conversation; answers of the one before are no longer sampled. */
  const show = (next: Chat) => {
    stop(runningReplies(chat));
    keep(chat);
    setChat(next);
  };
  const sample = async (asked: Chat, column: number, replies: readonly Reply[], seed: number) => {
    const ending = new AbortController();
    for (const { id } of replies) running.current.set(id, ending);
    const tell = (id: string, change: (reply: Reply) => Reply) =>
      setChat((now) => withReply(now, id, change));
    const request = {
      model: asked.models[column]!,
      messages: promptMessages(asked, column, asked.turns.length - 1),
      seed,
    };
    const ids = replies.map(({ id }) => id);
    await askModel(request, playgroundSettings.value, ids, tell, ending.signal);
    for (const id of ids) running.current.delete(id);
  };
  const askAll = (before: Chat, text: string) => {
    const { samples, seed } = playgroundSettings.value;
    const asked = withQuestion(before, text, samples);
    show(asked);
    for (const [column, exchange] of asked.turns.at(-1)!.exchanges.entries())
      void sample(asked, column, exchange.samples, seed);
  };
  const askAgain = (column: number, turn: number) => {
    const isLast = turn === chat.turns.length - 1;
    const reply = newReply();
    const asked = withAnotherReply(isLast ? chat : branch(chat, turn + 1), column, reply);
    const place = asked.turns.at(-1)!.exchanges[column]!.chosen;
    if (isLast) setChat(asked);
    else show(asked);
    void sample(asked, column, [reply], playgroundSettings.value.seed + place);
  };
  /** Earlier answers are those of the models before, so a conversation ends with them. */
  const setModels = (next: readonly string[]) =>
    show(chat.turns.length === 0 ? { ...chat, models: next } : newChat(next, chat.system));
  const send = () => {
    setQuestion("");
    askAll(chat, question);
  };
  const canSend = question.trim() !== "" && !isRunning;
  return (
    <>
      <div class="bar">
        <label>
          Conversation
          <select
            value={chat.id}
            onChange={(event) => {
              const chosen = kept.find(({ id }) => id === event.currentTarget.value);
              show(chosen ?? newChat(chat.models, chat.system));
            }}
          >
            {kept.every(({ id }) => id !== chat.id) && <option value={chat.id}>New chat</option>}
            {kept.map(({ id, turns }) => (
              <option key={id} value={id}>
                {turns[0]!.question.slice(0, 60)}
              </option>
            ))}
          </select>
        </label>
        {chat.turns.length > 0 && (
          <>
            <button type="button" class="quiet" onClick={() => show(newChat(chat.models, chat.system))}>
              New chat
            </button>
            <button
              type="button"
              class="quiet"
              onClick={() => {
                stop(runningReplies(chat));
                setChat(newChat(chat.models, chat.system));
                forget(chat.id);
              }}
            >
              Delete chat
            </button>
          </>
        )}
        {chat.models.length < MAX_COLUMNS && (
          <button
            type="button"
            class="end"
            onClick={() => setModels([...chat.models, base[0] ?? checkpoints[0]!.path])}
          >
            Add a model
          </button>
        )}
      </div>
      <form
        class="card padded form"
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <label>
          System message
          <textarea
            rows={1}
            value={chat.system}
            onInput={(event) => setChat({ ...chat, system: event.currentTarget.value })}
          />
        </label>
        <label>
          Message
          <textarea
            rows={3}
            value={question}
            placeholder="Sent to all models with the same seed; Ctrl+Enter sends it"
            onInput={(event) => setQuestion(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !canSend) return;
              event.preventDefault();
              send();
            }}
          />
        </label>
        <SettingsFields />
        <span class="bar">
          {isRunning ? (
            <button type="button" class="end" onClick={() => stop(runningReplies(chat))}>
              Stop
            </button>
          ) : (
            <button type="submit" class="primary end" disabled={!canSend}>
              Send
            </button>
          )}
        </span>
      </form>
      {chat.turns.length > 0 && (
        <TokenControls
          choices={["logprob", "none"]}
          {...{ coloring, isTable }}
          onColoring={setColoring}
          onTable={setIsTable}
        />
      )}
      <div class={`columns of-${chat.models.length}`}>
        {chat.models.map((_, column) => (
          <ModelColumn
            key={column}
            {...{ chat, column, models, view: { coloring, isTable } }}
            actions={{
              onModel: (model) => setModels(chat.models.map((other, at) => (at === column ? model : other))),
              onRemove:
                chat.models.length > 1
                  ? () => setModels(chat.models.filter((_other, at) => at !== column))
                  : undefined,
              onChoose: (turn, chosen) => setChat(withChosen(chat, turn, column, chosen)),
              onAskAgain: (turn) => askAgain(column, turn),
              onEdit: (turn, text) => askAll(branch(chat, turn), text),
            }}
          />
        ))}
      </div>
    </>
  );
}
