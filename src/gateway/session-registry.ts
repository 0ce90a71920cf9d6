import type { SentConversation } from "../chat-api/index.js";
import { HttpError } from "../http-error.js";
import { textOf } from "../renderers/messages.js";
import type { Clock } from "../transport/clock.js";
import { randomUuid } from "../transport/ids.js";
import { wrongValue } from "../wire/index.js";
import { SESSION_ID } from "./address.js";
import { AgentSession, type SessionHost } from "./agent-session.js";
import type { SessionOptions } from "./gateway.js";
import { finalError } from "./sampling-error.js";
import type { SessionAnswer } from "./session-answer.js";
import type { SessionEnd } from "./session-record.js";

const SWEEP_MS = 5_000;
const MAX_REMEMBERED = 10_000;

/** The parts of the gateway that the registry uses. */
export interface RegistryOptions {
  readonly clock: Clock;
  readonly baseURL: () => string;
  readonly keyOf: (session: string) => string;
  readonly maxSessions: number;
  readonly maxSessionBytes: number;
  readonly timeoutMs: number;
  /** Called with each answer and each end, to record them. */
  readonly recorder?: SessionRecorder | undefined;
}

/** Writes sessions down as they happen. */
export interface SessionRecorder {
  answered(session: AgentSession, answer: SessionAnswer): Promise<void>;
  /** Writes rewards of a session down, also those that come after its end. */
  rewarderOf(session: AgentSession): (reward: number) => Promise<void>;
  /** Gives a reward to the last session of a name that an earlier gateway recorded in the folder. */
  earlierRewarder(id: string): Promise<((reward: number) => Promise<void>) | undefined>;
  ended(session: AgentSession): Promise<void>;
}

/** Record of an ended session. */
export interface EndedSession {
  readonly end: SessionEnd;
  /** Absent where nothing is recorded. */
  readonly reward?: ((reward: number) => Promise<void>) | undefined;
}

/** The open sessions: those that were created, those that a request began, and whose conversation a request continues. */
export class SessionRegistry {
  readonly #options: RegistryOptions;
  readonly #sessions = new Map<string, AgentSession>();
  /** Sessions that requests began; they end after a time without requests. */
  readonly #begun = new Set<AgentSession>();
  /** Sessions without an address, by what identifies their answers. */
  readonly #byAnswer = new Map<string, Set<AgentSession>>();
  readonly #answersOf = new Map<AgentSession, string[]>();
  /** The sessions that ended last. */
  readonly #ended = new Map<string, EndedSession>();
  readonly #stopSweep: () => void;

  constructor(options: RegistryOptions) {
    this.#options = options;
    let cancel = () => {};
    const sweepSoon = () => {
      cancel = options.clock.setTimer(
        () => {
          this.#sweep();
          sweepSoon();
        },
        SWEEP_MS,
        { background: true },
      );
    };
    sweepSoon();
    this.#stopSweep = () => cancel();
  }

  list(): readonly AgentSession[] {
    return [...this.#sessions.values()];
  }

  /** Opens a session on request. */
  create(options: SessionOptions): AgentSession {
    const id = options.id ?? randomUuid();
    if (!SESSION_ID.test(id)) throw wrongValue("id", "letters, digits, '_', '-' and '.', at most 100", id);
    if (this.#sessions.has(id)) throw wrongValue("id", "the name of no other session", id);
    this.#ended.delete(id);
    const session = this.#make(id, options);
    this.#add(session);
    return session;
  }

  /** The session of an address; the first request opens it. */
  named(id: string, options: SessionOptions = {}): AgentSession {
    const known = this.#sessions.get(id);
    if (known !== undefined) return known;
    const ended = this.#ended.get(id);
    if (ended !== undefined) throw finalError(`Session ${id} is over (${ended.end}).`);
    if (!SESSION_ID.test(id))
      throw finalError(
        `The session's name in the address must be 1 to 100 letters, digits, '_', '-' or '.'.`,
      );
    const session = this.#make(id, options);
    this.#begun.add(session);
    this.#add(session);
    return session;
  }

  find(id: string): AgentSession | undefined {
    return this.#sessions.get(id);
  }

  /** A session that is over, if it is among those that ended last. */
  findEnded(id: string): EndedSession | undefined {
    return this.#ended.get(id);
  }

  /** Writes the reward of a session that is not open; undefined if it is not recorded. */
  async rewarderOfClosed(id: string): Promise<((reward: number) => Promise<void>) | undefined> {
    return this.#ended.get(id)?.reward ?? (await this.#options.recorder?.earlierRewarder(id));
  }

  /** The session whose conversation a request continues, or a new one, which is listed once it is used. */
  ofConversation(conversation: SentConversation | undefined): AgentSession {
    let best: { readonly session: AgentSession; readonly depth: number } | undefined;
    for (const session of this.#candidates(conversation)) {
      const depth = session.depthOf(conversation!);
      if (depth > 0 && depth >= (best?.depth ?? 0)) best = { session, depth };
    }
    if (best !== undefined) return best.session;
    const session = this.#make(randomUuid(), {});
    this.#answersOf.set(session, []);
    return session;
  }

  async close(): Promise<void> {
    this.#stopSweep();
    await Promise.all(this.list().map((session) => session.end("closed")));
  }

  #candidates(conversation: SentConversation | undefined): ReadonlySet<AgentSession> {
    for (const message of conversation?.messages.toReversed() ?? []) {
      if (message.role !== "assistant") continue;
      const found = this.#byAnswer.get(answerKey(message.toolCalls?.[0]?.id, textOf(message)));
      if (found !== undefined) return found;
    }
    return new Set();
  }

  #make(id: string, options: SessionOptions): AgentSession {
    const { clock, baseURL, keyOf, maxSessionBytes, recorder } = this.#options;
    const host: SessionHost = {
      clock,
      baseURL: baseURL(),
      apiKey: keyOf(id),
      maxBytes: maxSessionBytes,
      onOpen: (session) => {
        if (!this.#answersOf.has(session) || this.#sessions.has(session.id)) return;
        this.#begun.add(session);
        this.#add(session);
      },
      onAnswer: async (session, answer) => {
        this.#index(session, answer);
        await recorder?.answered(session, answer);
      },
      onReward: (session, reward) => void recorder?.rewarderOf(session)(reward),
      onEnd: async (session) => {
        this.#remove(session);
        await recorder?.ended(session);
      },
    };
    return new AgentSession(id, options, host);
  }

  #add(session: AgentSession): void {
    if (session.isOver) return;
    const { maxSessions } = this.#options;
    if (this.#sessions.size >= maxSessions) {
      const [idle] = [...this.#begun]
        .filter(({ isBusy }) => !isBusy)
        .toSorted((one, other) => one.lastUsed - other.lastUsed);
      if (idle === undefined)
        throw new HttpError(429, `${maxSessions} sessions are open, the limit of this gateway.`, {
          "retry-after": "1",
        });
      void idle.end("idle");
    }
    this.#sessions.set(session.id, session);
  }

  #remove(session: AgentSession): void {
    if (this.#sessions.get(session.id) === session) this.#sessions.delete(session.id);
    this.#begun.delete(session);
    for (const key of this.#answersOf.get(session) ?? []) {
      const sessions = this.#byAnswer.get(key);
      sessions?.delete(session);
      if (sessions?.size === 0) this.#byAnswer.delete(key);
    }
    this.#answersOf.delete(session);
    const reward = this.#options.recorder?.rewarderOf(session);
    this.#ended.set(session.id, { end: session.endReason ?? "ended", reward });
    if (this.#ended.size > MAX_REMEMBERED) this.#ended.delete(this.#ended.keys().next().value!);
  }

  #index(session: AgentSession, { known }: SessionAnswer): void {
    const keys = this.#answersOf.get(session);
    if (keys === undefined || known === undefined) return;
    const key = answerKey(known.calls[0]?.id, known.text);
    keys.push(key);
    const sessions = this.#byAnswer.get(key) ?? new Set();
    this.#byAnswer.set(key, sessions.add(session));
  }

  #sweep(): void {
    const now = this.#options.clock.now();
    for (const session of this.#begun)
      if (!session.isBusy && now - session.lastUsed >= this.#options.timeoutMs) void session.end("idle");
    for (const session of this.#sessions.values()) {
      const { ownerPid } = session.options;
      if (ownerPid !== undefined && !isRunning(ownerPid)) void session.end("owner_gone");
    }
  }
}

function answerKey(callId: string | undefined, text: string): string {
  return callId === undefined ? `text ${text.trim()}` : `call ${callId}`;
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
