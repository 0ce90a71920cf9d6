import type { Clock } from "../../transport/clock.js";
import type { RunRecord } from "../store/run-store.js";
import type { StoredSession } from "../store/session-store.js";

/** A run that is being trained. */
export interface RunStatus {
  readonly id: string;
  /** As people named it, else the beginning of its id. */
  readonly name: string;
  readonly baseModel: string;
  readonly rank: number;
  /** Optimizer steps since it was created. */
  readonly steps: number;
  /** Loss of the last step per unit of weight: with weights of 1, the mean over the tokens. */
  readonly loss: number | undefined;
}

/** How a run ended. */
export type RunEnd = "finished" | "errored" | "interrupted" | "expired" | "unloaded" | "server closed";

/** Something that happened to a run. */
export type RunActivity =
  | { readonly type: "created" | "step"; readonly run: RunStatus }
  | { readonly type: "saved"; readonly run: RunStatus; readonly path: string }
  | { readonly type: "ended"; readonly run: RunStatus; readonly end: RunEnd };

/** Current work of a server. */
export interface ServerStatus {
  readonly runs: readonly RunStatus[];
  /** Training requests that are being executed or wait for their turn. */
  readonly trainingRequests: number;
  /** Sequences that are being sampled or wait for it. */
  readonly sequences: number;
  /** Over the last 10 seconds. */
  readonly trainedTokensPerSecond: number;
  readonly sampledTokensPerSecond: number;
}

/** A server's activity, for those who show it. */
export interface ServerActivity {
  status(): ServerStatus;
  /** Calls back for each event; the returned function ends that. */
  subscribe(listener: (event: RunActivity) => void): () => void;
}

/** Counters that are kept elsewhere. */
export type ActivitySources = {
  readonly [Name in "trainingRequests" | "sequences"]: () => number;
};

/** One pass over training data. */
export interface TrainingPass {
  readonly lossSum: number;
  readonly weight: number;
  readonly tokens: number;
  /** A forward pass only, without gradients. */
  readonly isForward: boolean;
  readonly startedAt: number;
}

interface RunTally {
  status: RunStatus;
  /** Sums over the passes since the last step. */
  lossSum: number;
  weight: number;
}

const RATE_SECONDS = 10;
const ID_LENGTH = 8;

/** Keeps account of what a server does, for those who show it. Holds nothing of what is over. */
export class Activity {
  readonly #clock: Clock;
  readonly #runs = new Map<string, RunTally>();
  readonly #listeners = new Set<(event: RunActivity) => void>();
  readonly #trained = new TokenRate();
  readonly #sampled = new TokenRate();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  subscribe(listener: (event: RunActivity) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  status({ trainingRequests, sequences }: ActivitySources): ServerStatus {
    const now = this.#clock.now();
    return {
      runs: [...this.#runs.values()].map(({ status }) => status),
      trainingRequests: trainingRequests(),
      sequences: sequences(),
      trainedTokensPerSecond: this.#trained.at(now),
      sampledTokensPerSecond: this.#sampled.at(now),
    };
  }

  created(run: RunRecord, session: StoredSession): void {
    const { id, baseModel, lora } = run;
    const status = { id, name: nameOf(run, session), baseModel, rank: lora.rank, steps: 0, loss: undefined };
    this.#runs.set(id, { status, lossSum: 0, weight: 0 });
    this.#report({ type: "created", run: status });
  }

  /** A pass over training data; its loss belongs to the next step. */
  trained(runId: string, pass: TrainingPass): void {
    this.#trained.add(pass.tokens, pass.startedAt, this.#clock.now());
    const run = this.#runs.get(runId);
    if (run === undefined || pass.isForward) return;
    run.lossSum += pass.lossSum;
    run.weight += pass.weight;
  }

  stepped(runId: string): void {
    const run = this.#runs.get(runId);
    if (run === undefined) return;
    const loss = run.weight > 0 ? run.lossSum / run.weight : undefined;
    run.status = { ...run.status, steps: run.status.steps + 1, loss };
    run.lossSum = 0;
    run.weight = 0;
    this.#report({ type: "step", run: run.status });
  }

  saved(runId: string, path: string): void {
    const run = this.#runs.get(runId)?.status;
    if (run !== undefined) this.#report({ type: "saved", run, path });
  }

  ended(runId: string, end: RunEnd): void {
    const run = this.#runs.get(runId)?.status;
    if (run === undefined) return;
    this.#runs.delete(runId);
    this.#report({ type: "ended", run, end });
  }

  sampled(tokens: number, startedAt: number): void {
    this.#sampled.add(tokens, startedAt, this.#clock.now());
  }

  #report(event: RunActivity): void {
    for (const listener of this.#listeners) listener(event);
  }
}

/** How the end of a session reads as the end of its runs. */
export function runEndOf(status: StoredSession["status"], isClosing: boolean): RunEnd {
  if (status.type === "client_finished") return status.reason === "success" ? "finished" : status.reason;
  return isClosing ? "server closed" : "expired";
}

/** A session may have several runs; the first has the session's name alone. */
function nameOf({ id, userMetadata }: RunRecord, session: StoredSession): string {
  const own = userMetadata?.["name"];
  if (own) return own;
  const named = session.userMetadata?.["name"] || session.displayName;
  const index = Number(id.slice(id.lastIndexOf(":") + 1));
  if (named) return index === 0 ? named : `${named} ${index + 1}`;
  const short = id.slice(0, ID_LENGTH);
  return index === 0 ? short : `${short}:${index}`;
}

/** Tokens in each of the last seconds. What took longer than one counts in all of them alike. */
class TokenRate {
  readonly #seconds = new Map<number, number>();

  add(tokens: number, fromMs: number, toMs: number): void {
    const [first, last] = [Math.floor(fromMs / 1000), Math.floor(toMs / 1000)];
    this.#forgetBefore(last);
    const share = tokens / (last - first + 1);
    for (let second = Math.max(first, last - RATE_SECONDS + 1); second <= last; second += 1)
      this.#seconds.set(second, (this.#seconds.get(second) ?? 0) + share);
  }

  at(nowMs: number): number {
    this.#forgetBefore(Math.floor(nowMs / 1000));
    return [...this.#seconds.values()].reduce((sum, tokens) => sum + tokens, 0) / RATE_SECONDS;
  }

  #forgetBefore(second: number): void {
    for (const old of this.#seconds.keys()) if (old <= second - RATE_SECONDS) this.#seconds.delete(old);
  }
}
