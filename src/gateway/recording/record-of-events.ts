import type { Message, ToolDeclaration } from "../../renderers/messages.js";
import { ModelInput, type StopReason } from "../../wire/index.js";
import type { PassedTurn, SampledTurn, SessionRecord, SessionThread } from "../session-record.js";
import type { AnsweredEvent, EndedEvent, OpenedEvent } from "./log-events.js";

/** The events of one session. */
export interface SessionEvents {
  readonly opened: OpenedEvent;
  readonly ended?: EndedEvent | undefined;
  readonly reward?: number | undefined;
  readonly answers: readonly AnsweredEvent[];
}

/** An answer, completed with the parts that its event leaves to earlier answers. */
interface Known {
  readonly event: AnsweredEvent;
  /** The conversation before the answer. */
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[];
  readonly prompt: readonly number[] | undefined;
}

/** Makes the record of a session again from what was recorded. */
export function recordOf({ opened, ended, reward, answers }: SessionEvents): SessionRecord {
  const { id, at, problem, group, step, tags } = opened;
  return {
    id,
    ...(problem !== undefined && { problem }),
    ...(group !== undefined && { group }),
    ...(step !== undefined && { step }),
    tags,
    startedAt: at,
    ...(ended && { end: ended.end, endedAt: ended.at }),
    ...(reward !== undefined && { reward }),
    threads: threadsOf(answers),
    counts: ended?.counts ?? {
      ...{ requests: answers.length, failures: 0, unfinished: 0 },
      sampledTokens: answers.reduce((sum, { tokens }) => sum + (tokens?.length ?? 0), 0),
    },
    ignored: ended?.ignored ?? [],
  };
}

function threadsOf(answers: readonly AnsweredEvent[]): SessionThread[] {
  const threads: SessionThread[] = [];
  for (const kind of ["chat", "passed", "plain"] as const) {
    const ofKind = answers.filter((event) => event.kind === kind);
    const known = knownAnswers(ofKind);
    const parents = new Set(ofKind.map(({ parent }) => parent));
    const repeated = new Set(ofKind.filter((event) => isRepeated(event, ofKind, parents)));
    const numbers = [...new Set(ofKind.map(({ thread }) => thread))].sort((one, other) => one - other);
    for (const number of numbers) {
      const events = ofKind.filter(({ thread }) => thread === number);
      const last = known.get(events.at(-1)!.number)!;
      const { fork } = events[0]!;
      const plainFork = { message: 0, why: "a plain prompt of its own" };
      const shownFork = fork ?? (kind === "plain" && threads.length > 0 ? plainFork : undefined);
      threads.push({
        turns: kind === "passed" ? [] : events.map((event) => turnOf(event, known, repeated.has(event))),
        messages: last.event.answer === undefined ? [] : [...last.messages, last.event.answer],
        tools: last.tools,
        ...(shownFork && { fork: shownFork }),
        ...(kind === "passed" && { passed: events.map((event) => passedTurn(event, known)) }),
      });
    }
  }
  return threads;
}

/** Answers by number. If an answer's predecessor is missing, only its own part is known. */
function knownAnswers(events: readonly AnsweredEvent[]): ReadonlyMap<number, Known> {
  const known = new Map<number, Known>();
  for (const event of events) {
    const before = event.parent === undefined ? undefined : known.get(event.parent);
    const { given, tools, prompt, continues } = event;
    const { answer: said, tokens = [] } = before?.event ?? {};
    known.set(event.number, {
      event,
      messages: before === undefined ? given : [...before.messages, ...(said ? [said] : []), ...given],
      tools: tools ?? before?.tools ?? [],
      prompt:
        prompt && continues && before?.prompt !== undefined
          ? [...before.prompt, ...tokens, ...prompt]
          : (prompt ?? undefined),
    });
  }
  return known;
}

function turnOf(
  event: AnsweredEvent,
  known: ReadonlyMap<number, Known>,
  isRepeatedTurn: boolean,
): SampledTurn {
  const { number, tokens = [], logprobs = [], stopReason, model, step, at, kind } = event;
  const { prompt, messages } = known.get(number)!;
  return {
    prompt: prompt === undefined ? ModelInput.empty() : ModelInput.fromInts(prompt),
    tokens: Int32Array.from(tokens),
    logprobs: Float32Array.from(logprobs),
    stopReason: stopReason as StopReason,
    model,
    ...(step !== undefined && { step }),
    messageCount: kind === "plain" ? 0 : messages.length,
    isRepeated: isRepeatedTurn,
    at,
  };
}

function passedTurn(
  { number, model, stopReason, at }: AnsweredEvent,
  known: ReadonlyMap<number, Known>,
): PassedTurn {
  return { model, stopReason, at, messageCount: known.get(number)!.messages.length };
}

/** Whether the agent requested the answer again and continued with the other one, or has not continued yet. */
function isRepeated(
  event: AnsweredEvent,
  all: readonly AnsweredEvent[],
  parents: ReadonlySet<number | undefined>,
): boolean {
  if (parents.has(event.number)) return false;
  const first = event.sameAs ?? event.number;
  return all.some(
    (other) =>
      (other.sameAs ?? other.number) === first &&
      other.request !== event.request &&
      (other.request > event.request || parents.has(other.number)),
  );
}
