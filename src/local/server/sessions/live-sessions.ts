import { randomUUID } from "node:crypto";
import type { Clock } from "../../../transport/clock.js";
import type { BaseModelInfo } from "../../engine/engine.js";
import type { CheckpointRecord } from "../../store/checkpoint-store.js";
import type { RunRecord } from "../../store/run-store.js";
import type { SessionRecord } from "../../store/session-store.js";
import type { Store } from "../../store/store.js";
import type { Failure } from "../futures/future-store.js";
import { HttpError, tooBusy } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import { type Identity, mayAccess } from "../http/route.js";
import { TraceLog } from "./trace-log.js";
import type { TurnQueue } from "./turn-queue.js";

/** Where a model's state can be had again, to the last bit. */
export type StateSource =
  | { readonly type: "created" }
  | { readonly type: "checkpoint"; readonly record: CheckpointRecord; readonly optimizer: boolean };

/** A model being trained: its run, its place in the engine, and its requests. */
export interface LiveModel {
  readonly run: RunRecord;
  readonly adapterId: string;
  readonly info: BaseModelInfo;
  readonly turns: TurnQueue;
  readonly session: LiveSession;
  /** Absent while it has been changed since. */
  source: StateSource | undefined;
  /** Gathered since the last step; no checkpoint has them. */
  hasGradients: boolean;
  /** Its adapter went with an engine that was lost: the next request has it made again. */
  isAdapterLost: boolean;
  /** Set once a failure has left its weights in no state that anybody asked for. */
  corruptedBecause?: string;
}

/** A session with somebody at the other end. */
export interface LiveSession {
  readonly record: SessionRecord;
  readonly trace: TraceLog;
  readonly models: Map<string, LiveModel>;
  /** Request ids of unloads by model: one that is sent again must not fail because the model is gone. */
  readonly unloads: Map<string, string>;
  readonly samplerIds: Set<string>;
  lastSeenAt: number;
  /** Long polls that wait for an answer: somebody is there, however silent. */
  openPolls: number;
  /** Set while nobody seems to be there: its work waits until its client is back, or the session is over. */
  absence: Absence | undefined;
}

/** The time in which nobody waits for a session's work. */
export interface Absence {
  readonly over: Promise<void>;
  readonly end: () => void;
}

/** An absence that lasts until its `end` is called. */
export function newAbsence(): Absence {
  let end = () => {};
  const over = new Promise<void>((resolve) => {
    end = resolve;
  });
  return { over, end };
}

/** What a client says of its session. */
export type NewSession = Pick<
  SessionRecord,
  "tags" | "userMetadata" | "sdkVersion" | "projectId" | "displayName"
>;

/** What the sessions need of the server. */
export interface LiveSessionsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly limits: Limits;
  /** A session not heard of for this long is over. */
  readonly timeoutMs: number;
  /** Takes the work of a session whose client seems to be gone from the engine. */
  readonly onPause: (session: LiveSession) => void;
  /** Frees what a session that is over held; may take as long as the operation that is being executed. */
  readonly onEnd: (session: LiveSession, failure: Failure) => Promise<void>;
}

/** Work that nobody waits for pauses after this. Clients send a heartbeat every 10 s; two may be lost or late. */
export const PAUSE_AFTER_MS = 25_000;

/**
 * The sessions of this server; one ends when its client says so or is silent for too long. Long before that its work is
 * paused: a client that was killed says no goodbye, and whoever starts it again must not wait behind it.
 */
export class LiveSessions {
  readonly #options: LiveSessionsOptions;
  readonly #live = new Map<string, LiveSession>();
  readonly #ending = new Map<string, Promise<void>>();

  constructor(options: LiveSessionsOptions) {
    this.#options = options;
  }

  async open(identity: Identity, request: NewSession): Promise<LiveSession> {
    const { clock, limits, store } = this.#options;
    if (this.#live.size >= limits.openSessions) {
      throw tooBusy(`This server has ${this.#live.size} open sessions, its limit; close some first.`, 5);
    }
    const record: SessionRecord = {
      id: randomUUID(),
      owner: identity.owner,
      createdAt: clock.wallNow(),
      status: { type: "active" },
      samplers: [],
      ...request,
    };
    const session: LiveSession = {
      record,
      trace: new TraceLog(limits.traceEvents, clock.wallNow() - clock.now()),
      models: new Map(),
      unloads: new Map(),
      samplerIds: new Set(),
      lastSeenAt: clock.now(),
      openPolls: 0,
      absence: undefined,
    };
    this.#live.set(record.id, session);
    await store.sessions.save(record);
    return session;
  }

  /** The session that a request says it is of; a sign of life. 404 for an unknown one, 410 for one that is over. */
  use(identity: Identity, sessionId: string): LiveSession {
    const session = this.#live.get(sessionId);
    if (session !== undefined && mayAccess(identity, session.record.owner)) {
      this.#noteSeen(session);
      return session;
    }
    const record = this.record(identity, sessionId);
    throw new HttpError(
      410,
      `Session ${sessionId} is over: ${endOf(record)}. Open a new one; saved checkpoints are kept.`,
    );
  }

  /** A session as it is kept, live or over; 404 for an unknown one. */
  record(identity: Identity, sessionId: string): SessionRecord {
    const record = this.#options.store.sessions.get(sessionId);
    if (record !== undefined && mayAccess(identity, record.owner)) return record;
    throw new HttpError(404, `There is no session ${sessionId}.`);
  }

  /** Requests of all models that are being executed or wait. */
  get trainingRequests(): number {
    let sum = 0;
    for (const { turns } of this.models()) sum += turns.length;
    return sum;
  }

  /** Of all sessions. */
  *models(): Generator<LiveModel> {
    for (const { models } of this.#live.values()) yield* models.values();
  }

  /** Over, but what it held is not free yet, nor its trace written. */
  isEnding(sessionId: string): boolean {
    return this.#ending.has(sessionId);
  }

  get(sessionId: string): LiveSession | undefined {
    return this.#live.get(sessionId);
  }

  /** Somebody polls for a request of a session: a sign of life, for as long as the poll is open. */
  async whilePolling<T>(id: string, signal: AbortSignal, poll: () => Promise<T>): Promise<T> {
    const session = this.noteSeen(id);
    if (session === undefined) return poll();
    session.openPolls += 1;
    try {
      return await poll();
    } finally {
      session.openPolls -= 1;
      if (!signal.aborted) this.#noteSeen(session);
    }
  }

  /** A sign of life from whoever asks about a request. */
  noteSeen(requestId: string): LiveSession | undefined {
    const session = this.#live.get(sessionIdOf(requestId));
    if (session !== undefined) this.#noteSeen(session);
    return session;
  }

  #noteSeen(session: LiveSession): void {
    session.lastSeenAt = this.#options.clock.now();
    if (session.absence === undefined) return;
    session.absence.end();
    session.absence = undefined;
    for (const { turns } of session.models.values()) turns.resume();
  }

  #pause(session: LiveSession): void {
    session.absence = newAbsence();
    this.#options.onPause(session);
  }

  /** A loaded model, for somebody who may use it; a sign of life. */
  model(identity: Identity, modelId: string): LiveModel {
    const session = this.#live.get(sessionIdOf(modelId));
    const model = session?.models.get(modelId);
    if (session !== undefined && model !== undefined && mayAccess(identity, session.record.owner)) {
      this.#noteSeen(session);
      return model;
    }
    const run = this.#options.store.runs.get(modelId);
    if (run !== undefined && mayAccess(identity, run.owner)) {
      throw new HttpError(
        410,
        `Model ${modelId} is no longer loaded: it was unloaded, or its session is over. Create a new one from a checkpoint.`,
      );
    }
    throw new HttpError(404, `There is no model ${modelId}.`);
  }

  /** Ends a session because its client says so; one that is over stays as it is. */
  async finish(
    sessionId: string,
    reason: "success" | "errored" | "interrupted",
    detail: string | null,
  ): Promise<void> {
    const session = this.#live.get(sessionId);
    if (session === undefined) return;
    const status = { type: "client_finished", reason, detail, at: this.#options.clock.wallNow() } as const;
    await this.#end(session, status, { error: "its client finished it", category: "user" });
  }

  /** Pauses and ends what is silent for too long; not counting the time in which this server itself was away. */
  async expire(awayMs: number): Promise<void> {
    const { clock, timeoutMs } = this.#options;
    for (const session of [...this.#live.values()]) {
      session.lastSeenAt = Math.min(session.lastSeenAt + awayMs, clock.now());
      if (session.openPolls > 0) continue;
      const silentMs = clock.now() - session.lastSeenAt;
      if (silentMs >= PAUSE_AFTER_MS && session.absence === undefined) this.#pause(session);
      if (silentMs < timeoutMs) continue;
      const status = { type: "expired", at: clock.wallNow() } as const;
      const error = `it sent no heartbeat for ${Math.round(timeoutMs / 1000)} s`;
      // Not the user's: nothing is wrong with the requests, which a new session may send again.
      await this.#end(session, status, { error, category: "server" });
    }
  }

  /** Ends all sessions and waits until what they held is free. */
  async close(): Promise<void> {
    const status = { type: "expired", at: this.#options.clock.wallNow() } as const;
    const ended = [...this.#live.values()].map((session) =>
      this.#end(session, status, { error: "the server was closed", category: "server" }),
    );
    const saved = await Promise.allSettled(ended);
    await Promise.all(this.#ending.values());
    for (const one of saved) if (one.status === "rejected") throw one.reason;
  }

  async #end(session: LiveSession, status: SessionRecord["status"], why: Failure): Promise<void> {
    const { id } = session.record;
    const { store, onEnd } = this.#options;
    if (!this.#live.delete(id)) return;
    session.record.status = status;
    const ending = onEnd(session, { ...why, error: `Session ${id} is over: ${why.error}.` })
      .then(() =>
        session.trace.isEmpty ? undefined : store.sessions.saveTrace(id, session.trace.toJson(id)),
      )
      .catch(() => undefined)
      .finally(() => this.#ending.delete(id));
    session.absence?.end();
    this.#ending.set(id, ending);
    await store.sessions.save(session.record);
  }
}

/** The session id at the front of a model, sampler or request id. */
export function sessionIdOf(id: string): string {
  return id.split(":", 1)[0]!;
}

/** Metadata as the SDKs read it back: text to text. */
export function textMetadata(
  metadata: Readonly<Record<string, unknown>> | undefined,
): Record<string, string> | null {
  if (metadata === undefined) return null;
  return Object.fromEntries(
    Object.entries(metadata).map(([key, value]) => [
      key,
      typeof value === "string" ? value : JSON.stringify(value),
    ]),
  );
}

/** The project of a session or run; what was given none is in the default one. */
export function projectOf(record: { readonly projectId: string | null }): string {
  return record.projectId ?? "default";
}

function endOf(record: SessionRecord): string {
  switch (record.status.type) {
    case "client_finished":
      return "its client finished it";
    case "expired":
      return "it sent no heartbeat for too long, or the server was closed";
    case "active":
      return "the server was restarted";
    default:
      return record.status satisfies never;
  }
}
