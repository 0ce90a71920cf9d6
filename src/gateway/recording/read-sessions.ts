import { join } from "node:path";
import { TinkerError } from "../../errors.js";
import { errorCode } from "../../files.node.js";
import { parseJsonObject } from "../../training/json-lines.node.js";
import type { SessionEnd, SessionRecord } from "../session-record.js";
import {
  type AnsweredEvent,
  type EndedEvent,
  type LogEvent,
  type OpenedEvent,
  SESSIONS_FILE,
} from "./log-events.js";
import { readWholeLines } from "./read-lines.js";
import { recordOf } from "./record-of-events.js";

/** A session of a recording, as a list shows it. */
export interface RecordedSummary {
  /** Key of its events. */
  readonly key: string;
  readonly id: string;
  readonly startedAt: number;
  /** Absent if it has not ended or its gateway was killed. */
  readonly endedAt?: number | undefined;
  readonly end?: SessionEnd | undefined;
  readonly group?: number | undefined;
  readonly step?: number | undefined;
  readonly tags: readonly string[];
  readonly reward?: number | undefined;
  readonly turns: number;
  /** Threads of its conversations: 1 more than it has forks. */
  readonly threads: number;
  readonly sampledTokens: number;
  readonly model?: string | undefined;
  readonly baseModel?: string | undefined;
}

/** The sessions of a recording. */
export interface Recording {
  readonly sessions: readonly RecordedSummary[];
  /** Lines that are not events of a session. */
  readonly badLines: number;
}

interface Gathered {
  readonly opened: OpenedEvent;
  ended?: EndedEvent | undefined;
  reward?: number | undefined;
  turns: number;
  readonly threads: Set<string>;
  sampledTokens: number;
  model?: string | undefined;
  baseModel?: string | undefined;
  /** Where its last event begins. */
  last: number;
}

/** Reads the sessions of a folder that a gateway has recorded in, without their messages and tokens. */
export async function listSessions(folder: string): Promise<Recording> {
  const { gathered, badLines } = await gather(folder);
  return { sessions: [...gathered.values()].map(summaryOf), badLines };
}

/** The key of the last recorded session of each name. */
export async function lastKeys(folder: string): Promise<ReadonlyMap<string, string>> {
  const keys = new Map<string, string>();
  for await (const { event } of events(folder, ({ bytes }) => bytes.includes('"type":"opened"')))
    if (event?.type === "opened") keys.set(event.id, event.key);
  return keys;
}

/** A recorded session with its messages and tokens. */
export interface RecordedSession extends SessionRecord {
  readonly key: string;
}

/** Reads sessions of a recording, those that `isWanted` takes, in the order in which they ended. */
export async function* readSessions(
  folder: string,
  isWanted: (summary: RecordedSummary) => boolean = () => true,
): AsyncGenerator<RecordedSession, void, undefined> {
  const { gathered } = await gather(folder);
  const wanted = new Map(
    [...gathered].flatMap(([key, found]) =>
      isWanted(summaryOf(found)) ? [[key, { found, answers: [] as AnsweredEvent[] }]] : [],
    ),
  );
  if (wanted.size === 0) return;
  for await (const { event, start } of events(folder)) {
    const session = event && wanted.get(event.key);
    if (event === undefined || session === undefined) continue;
    if (event.type === "answered") session.answers.push(event);
    if (start < session.found.last) continue;
    wanted.delete(event.key);
    const { opened, ended, reward } = session.found;
    yield { key: event.key, ...recordOf({ opened, ended, reward, answers: session.answers }) };
  }
}

async function gather(folder: string): Promise<{ gathered: Map<string, Gathered>; badLines: number }> {
  const gathered = new Map<string, Gathered>();
  let badLines = 0;
  for await (const { event, start } of events(folder)) {
    if (event?.type === "opened") {
      gathered.set(event.key, {
        opened: event,
        ...{ turns: 0, threads: new Set(), sampledTokens: 0, last: start },
      });
      continue;
    }
    const session = event && gathered.get(event.key);
    if (event === undefined || session === undefined) {
      badLines += 1;
      continue;
    }
    session.last = start;
    switch (event.type) {
      case "answered":
        session.turns += 1;
        session.threads.add(`${event.kind} ${event.thread}`);
        session.sampledTokens += event.tokens?.length ?? 0;
        session.model ??= event.model;
        session.baseModel ??= event.baseModel;
        break;
      case "reward":
        session.reward = event.reward;
        break;
      case "ended":
        session.ended = event;
        session.reward ??= event.reward;
        break;
      default:
        event satisfies never;
    }
  }
  return { gathered, badLines };
}

function summaryOf({ opened, ended, reward, turns, threads, ...found }: Gathered): RecordedSummary {
  const { sampledTokens, model, baseModel } = found;
  const { key, id, at, group, step, tags } = opened;
  return {
    ...{ key, id, startedAt: at, tags, turns, threads: threads.size, sampledTokens },
    ...(ended && { endedAt: ended.at, end: ended.end }),
    ...(group !== undefined && { group }),
    ...(step !== undefined && { step }),
    ...(reward !== undefined && { reward }),
    ...(model !== undefined && { model }),
    ...(baseModel !== undefined && { baseModel }),
  };
}

async function* events(
  folder: string,
  isWanted: (line: { readonly bytes: Buffer }) => boolean = ({ bytes }) => bytes.length > 0,
): AsyncGenerator<{ readonly event: LogEvent | undefined; readonly start: number }, void, undefined> {
  try {
    for await (const line of readWholeLines(join(folder, SESSIONS_FILE)))
      if (isWanted(line)) yield { event: eventOf(line.bytes.toString()), start: line.start };
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes(errorCode(error) ?? ""))
      throw new TinkerError(`${folder} holds no recorded sessions: it has no ${SESSIONS_FILE}.`);
    throw error;
  }
}

/** An event, if the line is one and has the required fields. */
function eventOf(line: string): LogEvent | undefined {
  const event = parseJsonObject(line);
  if (typeof event?.["key"] !== "string" || typeof event["at"] !== "number") return undefined;
  const isEvent =
    (event["type"] === "opened" && typeof event["id"] === "string" && Array.isArray(event["tags"])) ||
    (event["type"] === "answered" &&
      Array.isArray(event["given"]) &&
      typeof event["number"] === "number" &&
      typeof event["thread"] === "number") ||
    (event["type"] === "reward" && typeof event["reward"] === "number") ||
    (event["type"] === "ended" && typeof event["counts"] === "object");
  return isEvent ? (event as unknown as LogEvent) : undefined;
}
