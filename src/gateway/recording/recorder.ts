import { randomBytes } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { messageOf, TinkerError } from "../../errors.js";
import { FolderLock } from "../../files.node.js";
import type { Clock } from "../../transport/clock.js";
import { randomUuid } from "../../transport/ids.js";
import type { Logger } from "../../transport/logger.js";
import type { AgentSession } from "../agent-session.js";
import { shortNumbers } from "../record-json.js";
import type { SessionAnswer } from "../session-answer.js";
import type { SessionRecorder } from "../session-registry.js";
import { CAPTURE_FILE, CAPTURE_FOLDER, captureRecord, scopeOfTags } from "./capture-record.js";
import { type AnsweredEvent, type LogEvent, SESSIONS_FILE } from "./log-events.js";
import { type FolderSpace, LogFile } from "./log-file.js";
import { lastKeys } from "./read-sessions.js";

const SECRET_FILE = ".session-secret";
const SECRET_BYTES = 32;

interface Known {
  readonly key: string;
  readonly isOpened: Promise<boolean>;
  numCaptured: number;
  /** True once a part was not written: later answers would lack their predecessor. */
  isBroken: boolean;
}

/** How much was recorded. */
export interface RecordingState {
  readonly folder: string;
  readonly bytes: number;
  /** Answers that were given and not recorded: the folder is full, or could not be written. */
  readonly unrecorded: number;
}

/** Where a recorder writes, and how much. */
export interface RecorderOptions {
  readonly folder: string;
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly logger: Pick<Logger, "error" | "warn">;
}

/** Writes the sessions of a gateway to a folder while they run, each answer before the agent has read its end. */
export class FolderRecorder implements SessionRecorder {
  readonly #options: RecorderOptions;
  readonly #lock: FolderLock;
  readonly #log: LogFile;
  readonly #capture: LogFile;
  readonly #space: FolderSpace;
  /** Signs the keys of sessions: they stay valid when the gateway is started again. */
  readonly sessionSecret: Uint8Array;
  readonly #known = new WeakMap<AgentSession, Known>();
  /** Keys of the sessions in the folder by their names; read when one is first asked for. */
  #earlierKeys: Promise<ReadonlyMap<string, string>> | undefined;
  #unrecorded = 0;
  /** Error of the last line that could not be written. */
  #problem: "long" | "full" | "failed" | undefined;

  private constructor(
    options: RecorderOptions,
    lock: FolderLock,
    log: LogFile,
    capture: LogFile,
    space: FolderSpace,
    sessionSecret: Uint8Array,
  ) {
    this.sessionSecret = sessionSecret;
    this.#options = options;
    this.#lock = lock;
    this.#log = log;
    this.#capture = capture;
    this.#space = space;
  }

  /** Creates the folder, or continues in one that has sessions already. */
  static async open(options: RecorderOptions): Promise<FolderRecorder> {
    const folder = resolve(options.folder);
    const space = { maxBytes: options.maxBytes, bytes: 0 };
    let lock: FolderLock | undefined;
    try {
      await mkdir(join(folder, CAPTURE_FOLDER), { recursive: true });
      lock = await FolderLock.take(folder, "recording");
      const log = await LogFile.open(join(folder, SESSIONS_FILE), space);
      const capture = await LogFile.open(join(folder, CAPTURE_FOLDER, CAPTURE_FILE), space);
      const secret = await secretOf(folder);
      return new FolderRecorder({ ...options, folder }, lock, log, capture, space, secret);
    } catch (error) {
      await lock?.release();
      if (error instanceof TinkerError) throw error;
      throw new TinkerError(`Nothing can be recorded in ${folder}: ${messageOf(error)}`, { cause: error });
    }
  }

  get state(): RecordingState {
    return { folder: this.#options.folder, bytes: this.#space.bytes, unrecorded: this.#unrecorded };
  }

  async answered(session: AgentSession, answer: SessionAnswer): Promise<void> {
    const known = this.#of(session);
    if (known.isBroken || !(await known.isOpened)) {
      this.#unrecorded += 1;
      return;
    }
    const event = answeredEvent(known.key, answer);
    if (!(await this.#write(this.#log, event))) {
      known.isBroken = true;
      this.#unrecorded += 1;
      return;
    }
    if (answer.kind === "passed") return;
    const { tokens, logprobs, stopReason } = answer;
    const prompt = answer.prompt();
    const { group, step, tags = [] } = session.options;
    await this.#write(
      this.#capture,
      captureRecord({
        scope: {
          run_id: basename(this.#options.folder),
          ...(step !== undefined && { iteration: step }),
          ...(group !== undefined && { group_idx: group }),
          ...scopeOfTags(tags),
          session: session.id,
        },
        at: event.at,
        samplingSessionId: known.key,
        number: known.numCaptured++,
        policyVersion: answer.step === undefined ? answer.model : String(answer.step),
        baseModel: answer.baseModel,
        prompt: prompt.isText ? prompt.toInts() : undefined,
        promptLength: prompt.length,
        sequences: [{ tokens, logprobs, stopReason }],
      }),
    );
  }

  rewarderOf(session: AgentSession): (reward: number) => Promise<void> {
    const { key, isOpened } = this.#of(session);
    return async (reward) => {
      if (await isOpened) await this.#writeReward(key, reward);
    };
  }

  async earlierRewarder(id: string): Promise<((reward: number) => Promise<void>) | undefined> {
    this.#earlierKeys ??= lastKeys(this.#options.folder);
    const key = (await this.#earlierKeys).get(id);
    return key === undefined ? undefined : (reward) => this.#writeReward(key, reward);
  }

  async #writeReward(key: string, reward: number): Promise<void> {
    await this.#write(this.#log, { type: "reward", key, at: this.#options.clock.wallNow(), reward });
  }

  async ended(session: AgentSession): Promise<void> {
    const known = this.#of(session);
    if (!(await known.isOpened)) return;
    const { end, endedAt, reward, counts, ignored } = session.summary();
    const { key } = known;
    await this.#write(this.#log, {
      ...{ type: "ended", key, at: endedAt ?? this.#options.clock.wallNow(), end: end ?? "ended" },
      ...(reward !== undefined && { reward }),
      ...{ counts, ignored },
    });
    await this.#log.sync().catch(() => {});
  }

  async close(): Promise<void> {
    await this.#log.close();
    await this.#capture.close();
    await this.#lock.release();
  }

  #of(session: AgentSession): Known {
    const known = this.#known.get(session);
    if (known !== undefined) return known;
    const key = randomUuid();
    const { problem, group, step, tags = [] } = session.options;
    const { id, startedAt: at } = session;
    const isOpened = this.#write(this.#log, {
      ...{ type: "opened", key, id, at, tags },
      ...(problem !== undefined && { problem }),
      ...(group !== undefined && { group }),
      ...(step !== undefined && { step }),
    });
    const made: Known = { key, isOpened, numCaptured: 0, isBroken: false };
    this.#known.set(session, made);
    return made;
  }

  /** Writes a record; false if that failed. A failing recording is reported and does not stop agents. */
  async #write(file: LogFile, value: LogEvent | object): Promise<boolean> {
    const { logger, maxBytes, folder } = this.#options;
    const before = this.#problem;
    try {
      const outcome = await file.append(value);
      this.#problem = outcome === "written" ? undefined : outcome;
      if (outcome === "full" && before !== "full")
        logger.warn(
          `The recording ${folder} has reached its limit of ${maxBytes} bytes: agents are answered, and no longer recorded.`,
        );
      if (outcome === "long")
        logger.warn("An answer has too many messages for one line of the recording: it is not recorded.");
      return outcome === "written";
    } catch (error) {
      this.#problem = "failed";
      if (before !== "failed") logger.error(`Answers could not be recorded: ${messageOf(error)}`);
      return false;
    }
  }
}

async function secretOf(folder: string): Promise<Uint8Array> {
  const path = join(folder, SECRET_FILE);
  const known = await readFile(path).catch(() => undefined);
  if (known?.length === SECRET_BYTES) return known;
  const secret = randomBytes(SECRET_BYTES);
  await writeFile(path, secret, { mode: 0o600 });
  return secret;
}

function answeredEvent(key: string, answer: SessionAnswer): AnsweredEvent {
  const { kind, number, thread, fork, model, baseModel, step, stopReason, at } = answer;
  const common = {
    ...{ type: "answered" as const, key, at, kind, number, thread },
    ...(fork && { fork }),
    ...{ request: answer.request, model, stopReason },
    ...(baseModel !== undefined && { baseModel }),
    ...(step !== undefined && { step }),
    ...(answer.parent !== undefined && { parent: answer.parent }),
    ...(answer.sameAs !== undefined && { sameAs: answer.sameAs }),
    ...{ given: answer.given, answer: answer.message },
    ...(answer.tools && { tools: answer.tools }),
  };
  if (answer.kind === "passed") return common;
  const { promptRest } = answer;
  return {
    ...common,
    continues: answer.continues,
    prompt: promptRest.isText ? promptRest.toInts() : null,
    tokens: Array.from(answer.tokens),
    logprobs: shortNumbers(answer.logprobs),
  };
}
