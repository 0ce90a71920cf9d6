import { randomUUID } from "node:crypto";
import type { Clock } from "../../../transport/clock.js";
import type { BaseModelInfo, CustomLoss } from "../../engine/engine.js";
import type { StoredCheckpoint } from "../../store/checkpoint-store.js";
import type { RunRecord } from "../../store/run-store.js";
import { type StoredSession, sessionIdOf } from "../../store/session-store.js";
import type { Store } from "../../store/store.js";
import type { Failure } from "../futures/future-store.js";
import { HttpError, tooBusy } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import type { OwnerShares } from "../http/owner-shares.js";
import { mayAccess, type RequestOwner } from "../http/route.js";
import { TraceLog } from "./trace-log.js";
import type { TurnQueue } from "./turn-queue.js";

/** Checkpoint from which a model's state can be restored, to the last bit. */
export type StateSource =
  | { readonly type: "created" }
  | { readonly type: "checkpoint"; readonly record: StoredCheckpoint; readonly optimizer: boolean };

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
  /** Set once a failure has left its weights in an unknown state. */
  corruptedBecause?: string;
}

/** A custom loss that a session has created. */
export interface SessionLoss extends CustomLoss {
  readonly name: string;
  readonly fingerprint: string;
  /** Size of the graph as JSON. */
  readonly bytes: number;
}

/** A session whose client is connected. */
export interface LiveSession {
  readonly record: StoredSession;
  readonly trace: TraceLog;
  readonly models: Map<string, LiveModel>;
  /** Request ids of unloads by model: one that is sent again must not fail because the model is gone. */
  readonly unloads: Map<string, string>;
  readonly samplerIds: Set<string>;
  /** Custom losses by their ids. */
  readonly customLosses: Map<string, SessionLoss>;
  lastSeenAt: number;
  /** Open long polls: while there is one, the client is present. */
  openPolls: number;
  /** Set while the client seems absent: its work waits until the client is back, or the session is over. */
  absence: Absence | undefined;
}

/** A period in which the client of a session is absent. */
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

/** A client's description of its session. */
export type NewSession = Pick<
  StoredSession,
  "tags" | "userMetadata" | "sdkVersion" | "projectId" | "displayName"
>;

/** Parts of the server that sessions use. */
export interface LiveSessionsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly limits: Limits;
  /** A limit that owners share. */
  readonly shared: (limit: number) => OwnerShares;
  /** A session not heard of for this long is over. */
  readonly timeoutMs: number;
  /** Takes the work of a session whose client seems to be gone from the engine. */
  readonly onPause: (session: LiveSession) => void;
  /** Frees what a session that is over held; may take as long as the operation that is being executed. */
  readonly onEnd: (session: LiveSession, failure: Failure) => Promise<void>;
}

/** Work of an absent client pauses after this time. Clients send a heartbeat every 10 s; two may be lost or late. */
export const PAUSE_AFTER_MS = 25_000;

/**
 * The sessions of this server; one ends when its client says so or is silent for too long. Long before that its work is
 * paused: a killed client does not close its session, and its next start must not wait behind it.
 */
export class LiveSessions {
  readonly #options: LiveSessionsOptions;
  readonly #live = new Map<string, LiveSession>();
  readonly #ending = new Map<string, Promise<void>>();

  constructor(options: LiveSessionsOptions) {
    this.#options = options;
  }

  async open(identity: RequestOwner, request: NewSession): Promise<LiveSession> {
    const { clock, limits, store } = this.#options;
    const { owner } = identity;
    const open = this.held(limits.openSessions, () => 1);
    if (!open.admits(owner, 1)) {
      throw tooBusy(
        `You have ${open.heldBy(owner)} open sessions, and may have ${Math.floor(open.limitFor(owner))} now; close some first.`,
        5,
      );
    }
    const record: StoredSession = {
      id: randomUUID(),
      owner,
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
      customLosses: new Map(),
      lastSeenAt: clock.now(),
      openPolls: 0,
      absence: undefined,
    };
    this.#live.set(record.id, session);
    await store.sessions.save(record);
    return session;
  }

  /** Use of a shared limit by each owner, counted over their open sessions. */
  held(limit: number, amountOf: (session: LiveSession) => number): OwnerShares {
    const shares = this.#options.shared(limit);
    for (const session of this.#live.values()) shares.add(session.record.owner, amountOf(session));
    return shares;
  }

  /** The session that a request says it is of; a sign of life. 404 for an unknown one, 410 for one that is over. */
  use(identity: RequestOwner, sessionId: string): LiveSession {
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
  record(identity: RequestOwner, sessionId: string): StoredSession {
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

  /** Models of all sessions. */
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

  /** Counts an open poll as a sign of life of its session. */
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

  /** Notes a sign of life of a request's session. */
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

  /** A loaded model, if the identity may use it; also a sign of life. */
  model(identity: RequestOwner, modelId: string): LiveModel {
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

  async #end(session: LiveSession, status: StoredSession["status"], why: Failure): Promise<void> {
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

function endOf(record: StoredSession): string {
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
