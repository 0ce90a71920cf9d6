import { useEffect, useRef, useState } from "preact/hooks";
import type {
  ChatEvent,
  ChatRequest,
  CheckpointList,
  ServerAnswer,
  ShownMessage,
  ShownToken,
} from "../../api.js";
import type { ViewProps } from "../app.js";
import { duration, wholeNumber } from "../format.js";
import { runList } from "../live.js";
import { Conversation } from "../parts/conversation.js";
import { Answer, Command, Empty, Problem } from "../parts/pieces.js";
import { type Coloring, TokenControls, Tokens } from "../parts/tokens.js";
import { ask, askJson, eventsOf } from "../server.js";
import { problemOf, useAsked, useStore } from "../store.js";

/** What one model has said so far. */
interface Reply {
  readonly text: string;
  readonly thinking: string;
  readonly answer?: Extract<ChatEvent, { type: "answer" }> | undefined;
  readonly problem?: string | undefined;
  readonly isRunning: boolean;
}

/** A question and the answer that one column goes on with. */
interface Turn {
  readonly question: string;
  readonly replies: readonly Reply[];
}

const NOTHING: Reply = { text: "", thinking: "", isRunning: true };

/** The same conversation with two models side by side. */
export function PlaygroundView({ route, info }: ViewProps) {
  const runs = useStore(runList)?.runs ?? [];
  const asked = useAsked(async (signal) => {
    const [server, { checkpoints }] = await Promise.all([
      askJson<ServerAnswer>("server", { signal }),
      askJson<CheckpointList>("checkpoints", { signal }),
    ]);
    const samplers = checkpoints
      .filter(({ kind, server: state }) => kind === "sampler" && state !== undefined)
      .toSorted((one, other) => other.server!.time.localeCompare(one.server!.time));
    return { base: server.models.map(({ name }) => name), samplers };
  }, []);
  if (info.isReadOnly)
    return (
      <Empty title="Only looking">This dashboard was started with --read-only, so nothing is sampled.</Empty>
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
  return (
    <Answer asked={asked}>
      {({ base, samplers }) => {
        const runOf = (id: string | undefined) => runs.find((run) => run.id === id)?.name;
        const checkpoints = samplers.map(({ path, run, name }) => ({
          path,
          title: [runOf(run) ?? path.replace(/^tinker:\/\/|\/.*/g, ""), name].join(" · "),
        }));
        return <Playground {...{ base, checkpoints }} first={route.query.get("model") ?? undefined} />;
      }}
    </Answer>
  );
}

function Playground({
  base,
  checkpoints,
  first,
}: {
  readonly base: readonly string[];
  readonly checkpoints: readonly { readonly path: string; readonly title: string }[];
  readonly first: string | undefined;
}) {
  const [models, setModels] = useState<readonly string[]>(() => [
    first ?? checkpoints[0]?.path ?? base[0] ?? "",
    base[0] ?? "",
  ]);
  const [system, setSystem] = useState("");
  const [question, setQuestion] = useState("");
  const [temperature, setTemperature] = useState(0.7);
  const [maxTokens, setMaxTokens] = useState(256);
  const [seed, setSeed] = useState(0);
  const [turns, setTurns] = useState<readonly Turn[]>([]);
  const [coloring, setColoring] = useState<Coloring>("logprob");
  const [isTable, setIsTable] = useState(false);
  const running = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => running.current?.abort(), []);
  const isRunning = turns.at(-1)?.replies.some((reply) => reply.isRunning) ?? false;

  const send = () => {
    const gone = new AbortController();
    running.current = gone;
    const before = turns;
    setTurns([...before, { question, replies: models.map(() => NOTHING) }]);
    setQuestion("");
    models.forEach((model, column) => {
      const messages = [
        ...(system.trim() === "" ? [] : [{ role: "system", content: system }]),
        ...before.flatMap((turn) => [
          { role: "user", content: turn.question },
          { role: "assistant", content: turn.replies[column]!.answer?.text ?? turn.replies[column]!.text },
        ]),
        { role: "user", content: question },
      ];
      const tell = (change: (reply: Reply) => Reply) =>
        setTurns((now) =>
          now.map((turn, place) =>
            place === before.length
              ? { ...turn, replies: turn.replies.map((reply, at) => (at === column ? change(reply) : reply)) }
              : turn,
          ),
        );
      void answer({ model, messages, temperature, maxTokens, seed }, tell, gone.signal);
    });
  };
  return (
    <>
      <form
        class="card padded form"
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <label>
          System message
          <textarea rows={1} value={system} onInput={(event) => setSystem(event.currentTarget.value)} />
        </label>
        <label>
          Message
          <textarea
            rows={3}
            value={question}
            placeholder="Asked of both models with the same seed"
            onInput={(event) => setQuestion(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (
                event.key !== "Enter" ||
                !(event.ctrlKey || event.metaKey) ||
                question.trim() === "" ||
                isRunning
              )
                return;
              event.preventDefault();
              send();
            }}
          />
        </label>
        <div class="bar">
          <NumberField
            title="Temperature"
            value={temperature}
            min={0}
            max={2}
            step={0.1}
            onChange={setTemperature}
          />
          <NumberField
            title="Most tokens"
            value={maxTokens}
            min={1}
            max={100_000}
            step={1}
            onChange={setMaxTokens}
          />
          <NumberField title="Seed" value={seed} min={0} max={2 ** 31 - 1} step={1} onChange={setSeed} />
          <span class="end bar">
            {turns.length > 0 && !isRunning && (
              <button type="button" class="quiet" onClick={() => setTurns([])}>
                Begin anew
              </button>
            )}
            {isRunning ? (
              <button type="button" onClick={() => running.current?.abort()}>
                Stop
              </button>
            ) : (
              <button type="submit" class="primary" disabled={question.trim() === ""}>
                Ask both
              </button>
            )}
          </span>
        </div>
      </form>
      {turns.length > 0 && (
        <TokenControls
          choices={["logprob", "none"]}
          {...{ coloring, isTable }}
          onColoring={setColoring}
          onTable={setIsTable}
        />
      )}
      <div class="columns">
        {models.map((model, column) => (
          <section key={column} class="card padded column" aria-label={`Model ${column + 1}`}>
            <label>
              {column === 0 ? "Left" : "Right"}
              <select
                value={model}
                onChange={(event) => {
                  const chosen = event.currentTarget.value;
                  setModels(models.map((other, at) => (at === column ? chosen : other)));
                  setTurns([]);
                }}
              >
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
                {!base.includes(model) && checkpoints.every(({ path }) => path !== model) && (
                  <option>{model}</option>
                )}
              </select>
            </label>
            {turns.map((turn, place) => (
              <div key={place} class="turn">
                <Conversation messages={[{ role: "user", parts: [{ type: "text", text: turn.question }] }]} />
                <ReplyShown reply={turn.replies[column]!} {...{ coloring, isTable }} />
              </div>
            ))}
            {turns.length === 0 && <p class="note">Ask something above.</p>}
          </section>
        ))}
      </div>
    </>
  );
}

function ReplyShown({
  reply,
  coloring,
  isTable,
}: {
  readonly reply: Reply;
  readonly coloring: Coloring;
  readonly isTable: boolean;
}) {
  const { answer, problem, text, thinking, isRunning } = reply;
  if (problem !== undefined) return <Problem text={problem} />;
  if (answer !== undefined && (coloring !== "none" || isTable))
    return <AnswerTokens {...{ answer, coloring, isTable }} />;
  const message: ShownMessage = answer?.message ?? {
    role: "assistant",
    parts: [
      ...(thinking === "" ? [] : [{ type: "thinking", text: thinking } as const]),
      { type: "text", text: text === "" && isRunning ? "…" : text },
    ],
  };
  return (
    <div aria-live="polite" aria-busy={isRunning}>
      <Conversation messages={[message]} />
      {answer && <Ending answer={answer} />}
      {!isRunning && answer === undefined && <p class="note">stopped</p>}
    </div>
  );
}

function AnswerTokens({
  answer,
  coloring,
  isTable,
}: {
  readonly answer: NonNullable<Reply["answer"]>;
  readonly coloring: Coloring;
  readonly isTable: boolean;
}) {
  return (
    <div class="message assistant">
      <span class="role">assistant</span>
      <Tokens tokens={answer.tokens} {...{ coloring, isTable }} />
      <Ending answer={answer} />
    </div>
  );
}

function Ending({
  answer: { tokens, seconds, stopReason },
}: {
  readonly answer: NonNullable<Reply["answer"]>;
}) {
  return (
    <p class="note">
      {wholeNumber(tokens.length)} tokens in {duration(seconds)}, ended by {stopReason}
      {meanLogprob(tokens)}
    </p>
  );
}

function meanLogprob(tokens: readonly ShownToken[]): string {
  const known = tokens.flatMap(({ logprob }) => (typeof logprob === "number" ? logprob : []));
  if (known.length === 0) return "";
  return `, mean logprob ${(known.reduce((sum, value) => sum + value, 0) / known.length).toFixed(3)}`;
}

function NumberField({
  title,
  onChange,
  ...field
}: {
  readonly title: string;
  readonly value: number;
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly onChange: (value: number) => void;
}) {
  return (
    <label>
      {title}
      <input
        type="number"
        class="place"
        required
        {...field}
        onChange={(event) =>
          event.currentTarget.validity.valid && onChange(event.currentTarget.valueAsNumber)
        }
      />
    </label>
  );
}

async function answer(
  request: ChatRequest,
  tell: (change: (reply: Reply) => Reply) => void,
  signal: AbortSignal,
): Promise<void> {
  try {
    const response = await ask("chat", { method: "POST", body: JSON.stringify(request), signal });
    for await (const event of eventsOf<ChatEvent>(response)) {
      if (event.type === "error") throw new Error(event.message);
      if (event.type === "answer") tell((reply) => ({ ...reply, answer: event }));
      else tell((reply) => ({ ...reply, [event.type]: reply[event.type] + event.text }));
    }
    tell((reply) => ({ ...reply, isRunning: false }));
  } catch (error) {
    tell((reply) => ({
      ...reply,
      isRunning: false,
      ...(signal.aborted ? {} : { problem: problemOf(error) }),
    }));
  }
}
