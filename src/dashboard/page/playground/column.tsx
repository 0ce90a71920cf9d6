import { useState } from "preact/hooks";
import type { PlaygroundRow, SavedRow } from "../../api.js";
import { wholeNumberText } from "../format.js";
import { ConversationView } from "../parts/conversation.js";
import { askJson } from "../server.js";
import { problemOf } from "../store.js";
import { type Chat, type Exchange, promptMessages, replyText, runningReplies } from "./chat.js";
import { ReplyView, type TokenView } from "./reply.js";

/** The models that can be chosen. */
export interface ModelChoices {
  readonly base: readonly string[];
  readonly checkpoints: readonly { readonly path: string; readonly title: string }[];
}

/** Actions of a column. */
export interface ColumnActions {
  readonly onModel: (model: string) => void;
  readonly onRemove: (() => void) | undefined;
  readonly onChoose: (turn: number, sample: number) => void;
  readonly onAskAgain: (turn: number) => void;
  readonly onEdit: (turn: number, question: string) => void;
}

/** One model's side of the conversation. */
export function ModelColumn({
  chat,
  column,
  models,
  view,
  actions,
}: {
  readonly chat: Chat;
  readonly column: number;
  readonly models: ModelChoices;
  readonly view: TokenView;
  readonly actions: ColumnActions;
}) {
  const isBusy = runningReplies(chat, column).length > 0;
  return (
    <section class="card padded column" aria-label={`Answers of model ${column + 1}`}>
      <ModelSelect model={chat.models[column]!} {...{ column, models, actions }} />
      {chat.turns.map((turn, place) => (
        <div key={turn.id} class="turn">
          <Question text={turn.question} onEdit={(question) => actions.onEdit(place, question)} />
          <ExchangeView
            key={turn.id}
            exchange={turn.exchanges[column]!}
            view={view}
            onChoose={(sample) => actions.onChoose(place, sample)}
            onAskAgain={isBusy ? undefined : () => actions.onAskAgain(place)}
            row={() => promptMessages(chat, column, place)}
          />
        </div>
      ))}
      {chat.turns.length === 0 && <p class="note">Ask something above.</p>}
    </section>
  );
}

function ModelSelect({
  model,
  column,
  models: { base, checkpoints },
  actions: { onModel, onRemove },
}: {
  readonly model: string;
  readonly column: number;
  readonly models: ModelChoices;
  readonly actions: ColumnActions;
}) {
  const isKnown = base.includes(model) || checkpoints.some(({ path }) => path === model);
  return (
    <div class="bar model">
      <label>
        Model {column + 1}
        <select value={model} onChange={(event) => onModel(event.currentTarget.value)}>
          <optgroup label="Base models">
            {base.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </optgroup>
          {checkpoints.length > 0 && (
            <optgroup label="Checkpoints">
              {checkpoints.map(({ path, title }) => (
                <option key={path} value={path}>
                  {title}
                </option>
              ))}
            </optgroup>
          )}
          {!isKnown && <option>{model}</option>}
        </select>
      </label>
      {onRemove && (
        <button
          type="button"
          class="quiet small"
          aria-label={`Remove model ${column + 1}`}
          onClick={onRemove}
        >
          Remove
        </button>
      )}
    </div>
  );
}

function Question({ text, onEdit }: { readonly text: string; readonly onEdit: (text: string) => void }) {
  const [edited, setEdited] = useState<string | undefined>(undefined);
  if (edited === undefined) {
    return (
      <div>
        <ConversationView messages={[{ role: "user", parts: [{ type: "text", text }] }]} />
        <button type="button" class="quiet small" onClick={() => setEdited(text)}>
          Edit
        </button>
      </div>
    );
  }
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        setEdited(undefined);
        onEdit(edited);
      }}
    >
      <label>
        Edited message
        <textarea rows={2} value={edited} onInput={(event) => setEdited(event.currentTarget.value)} />
      </label>
      <span class="bar">
        <button type="submit" class="primary small" disabled={edited.trim() === ""}>
          Ask in a new branch
        </button>
        <button type="button" class="quiet small" onClick={() => setEdited(undefined)}>
          Cancel
        </button>
      </span>
    </form>
  );
}

function ExchangeView({
  exchange: { samples, chosen },
  view,
  onChoose,
  onAskAgain,
  row,
}: {
  readonly exchange: Exchange;
  readonly view: TokenView;
  readonly onChoose: (sample: number) => void;
  readonly onAskAgain: (() => void) | undefined;
  readonly row: () => PlaygroundRow["messages"];
}) {
  const reply = samples[chosen]!;
  const [saved, setSaved] = useState<{ readonly id: string; readonly words: string } | undefined>(undefined);
  const save = async () => {
    const messages = [...row(), { role: "assistant", content: replyText(reply) }];
    const words = await askJson<SavedRow>("rows", {
      method: "POST",
      body: JSON.stringify({ messages }),
    }).then(({ path, rows }) => `Row ${wholeNumberText(rows)} of ${path}`, problemOf);
    setSaved({ id: reply.id, words });
  };
  return (
    <div>
      {samples.length > 1 && (
        <fieldset class="bar">
          <legend class="visually-hidden">Samples</legend>
          {samples.map(({ id, isRunning }, sample) => (
            <button
              key={id}
              type="button"
              class="small"
              aria-pressed={sample === chosen}
              aria-label={`Sample ${sample + 1}${isRunning ? ", not whole yet" : ""}`}
              onClick={() => onChoose(sample)}
            >
              {sample + 1}
            </button>
          ))}
        </fieldset>
      )}
      <ReplyView reply={reply} {...view} />
      {!reply.isRunning && (
        <div class="bar">
          {reply.problem === undefined && reply.answer === undefined && (
            <span class="note">not finished</span>
          )}
          {onAskAgain && (
            <button type="button" class="quiet small" onClick={onAskAgain}>
              Regenerate
            </button>
          )}
          {reply.problem === undefined && replyText(reply) !== "" && (
            <button type="button" class="quiet small" onClick={() => void save()}>
              Save as training row
            </button>
          )}
          {saved?.id === reply.id && (
            <span class="note text" role="status">
              {saved.words}
            </span>
          )}
        </div>
      )}
    </div>
  );
}
