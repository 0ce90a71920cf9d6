import { AsyncLocalStorage } from "node:async_hooks";
import { mkdir } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import type { SamplingClient } from "../../clients/index.js";
import { APIUserAbortError, messageOf } from "../../errors.js";
import { FolderLock } from "../../files.node.js";
import { type Clock, systemClock } from "../../transport/clock.js";
import type { Logger } from "../../transport/logger.js";
import {
  anyText,
  having,
  isRecord,
  ModelInput,
  type OptionsOf,
  option,
  optionTable,
  positiveInteger,
  type SampleResponse,
  text,
  value,
  withDefault,
} from "../../wire/index.js";
import { CAPTURE_FILE, CAPTURE_FOLDER, type CaptureScope, captureRecord } from "./capture-record.js";
import { type FolderSpace, LogFile } from "./log-file.js";

/** Options of `startCapture`: the folder of the samples, and their maximum size. */
export interface CaptureOptions {
  /** Folder in which `capture/sample.jsonl` is written; that of a run, for example. */
  readonly folder: string;
  /** Maximum size of the file in bytes; later samples are not captured. Default: 8 GiB. */
  readonly maxBytes?: number | undefined;
  /** Reports samples that could not be written. Default: the console. */
  readonly logger?: Pick<Logger, "error" | "warn"> | undefined;
}

/** Writes the samples of your own code as the Python cookbook's capture records; `startCapture` makes one. */
export interface Capture extends AsyncDisposable {
  /** Returns a sampler like the given one whose samples are captured. `policyVersion` names its weights in the records. */
  sampler<S extends Pick<SamplingClient, "sample">>(sampler: S, policyVersion?: string): S;
  /** Samples that were captured, and those that were not because the file is full or could not be written. */
  readonly counts: { readonly captured: number; readonly lost: number };
  /** Waits for unfinished writes and closes the file. */
  close(): Promise<void>;
}

const CAPTURE_OPTIONS = optionTable({
  folder: option(text, "folder in which capture/sample.jsonl is written"),
  maxBytes: option(withDefault(positiveInteger, 8 * 2 ** 30), "bytes that the file may have"),
  logger: option(
    withDefault(having<Pick<Logger, "error" | "warn">>("a logger, as console is one", "warn"), console),
    "where problems are reported",
  ),
} satisfies OptionsOf<CaptureOptions>);

const scopeField = value<CaptureScope>(
  "an object of texts, numbers and booleans by name",
  (given) =>
    isRecord(given) &&
    Object.values(given).every(
      (each) => each === null || ["string", "number", "boolean"].includes(typeof each),
    ),
);

const scopes = new AsyncLocalStorage<CaptureScope>();

/**
 * Runs a function in a scope, which is recorded with its samples, also the later ones. Inner scopes add to outer ones. The
 * Python cookbook's names are `run_id`, `run_attempt`, `split`, `iteration`, `group_idx`, `traj_idx` and `purpose`.
 */
export function capture<T>(scope: CaptureScope, work: () => T): T {
  scopeField.check(scope, "scope");
  return scopes.run({ ...scopes.getStore(), ...scope }, work);
}

/** Opens `capture/sample.jsonl` in a folder for the samples of your own code, each with the scope set by `capture`. */
export async function startCapture(options: CaptureOptions): Promise<Capture> {
  const { folder, maxBytes, logger } = CAPTURE_OPTIONS.check(options, "startCapture");
  const path = join(resolve(folder), CAPTURE_FOLDER);
  await mkdir(path, { recursive: true });
  const lock = await FolderLock.take(path, "capture folder");
  const space: FolderSpace = { maxBytes, bytes: 0 };
  const file = await LogFile.open(join(path, CAPTURE_FILE), space).catch(async (error: unknown) => {
    await lock.release();
    throw error;
  });
  return new FolderCapture(file, lock, basename(resolve(folder)), logger, systemClock);
}

type Asked = Parameters<SamplingClient["sample"]>[0];

class FolderCapture implements Capture {
  readonly #file: LogFile;
  readonly #lock: FolderLock;
  readonly #run: string;
  readonly #logger: Pick<Logger, "error" | "warn">;
  readonly #clock: Clock;
  readonly #underWay = new Set<Promise<void>>();
  readonly #counts = { captured: 0, lost: 0 };
  #number = 0;
  #closing: Promise<void> | undefined;

  constructor(
    file: LogFile,
    lock: FolderLock,
    run: string,
    logger: Pick<Logger, "error" | "warn">,
    clock: Clock,
  ) {
    this.#file = file;
    this.#lock = lock;
    this.#run = run;
    this.#logger = logger;
    this.#clock = clock;
  }

  get counts(): Capture["counts"] {
    return { ...this.#counts };
  }

  sampler<S extends Pick<SamplingClient, "sample">>(sampler: S, policyVersion?: string): S {
    having<S>("a SamplingClient", "sample").check(sampler, "sampler");
    if (policyVersion !== undefined) anyText.check(policyVersion, "policyVersion");
    const capture = this;
    return new Proxy(sampler, {
      get(target, name) {
        const found = Reflect.get(target, name, target) as unknown;
        if (typeof found !== "function") return found;
        if (name !== "sample" && name !== "stream") return found.bind(target);
        return (request: Asked, ...more: unknown[]) => {
          const result = (found as (...given: unknown[]) => unknown).call(target, request, ...more);
          const response = name === "sample" ? result : (result as { readonly result: unknown }).result;
          capture.#follow(target, policyVersion, request, response as PromiseLike<SampleResponse>);
          return result;
        };
      },
    });
  }

  close(): Promise<void> {
    this.#closing ??= (async () => {
      await Promise.all(this.#underWay);
      await this.#file.close();
      await this.#lock.release();
    })();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #follow(
    sampler: object,
    version: string | undefined,
    request: Asked,
    response: PromiseLike<SampleResponse>,
  ) {
    if (this.#closing !== undefined) return;
    const prompt = ModelInput.from(request.prompt, "prompt");
    const startedMs = this.#clock.now();
    const { samplingSessionId = "" } = sampler as { readonly samplingSessionId?: string };
    const common = {
      scope: { run_id: this.#run, ...scopes.getStore() },
      at: this.#clock.wallNow(),
      samplingSessionId,
      number: this.#number++,
      policyVersion: version,
      prompt: prompt.isText ? prompt.toInts() : undefined,
      promptLength: prompt.length,
      numSamples: request.numSamples ?? 1,
      ...(request.samplingParams && { samplingParams: request.samplingParams }),
    };
    const latency = () => ({ latencyMs: this.#clock.now() - startedMs });
    const written = Promise.resolve(response).then(
      ({ sequences }) =>
        this.#write({
          ...common,
          ...latency(),
          sequences: sequences.map(({ tokens, logprobs, stopReason }) => ({
            tokens,
            logprobs: logprobs ?? new Float32Array(),
            stopReason,
          })),
        }),
      (error: unknown) =>
        this.#write({
          ...common,
          ...latency(),
          sequences: [],
          error: messageOf(error),
          status: error instanceof APIUserAbortError ? "cancelled" : "error",
        }),
    );
    this.#underWay.add(written);
    void written.finally(() => this.#underWay.delete(written));
  }

  async #write(sample: Parameters<typeof captureRecord>[0]): Promise<void> {
    const isFirst = this.#counts.lost === 0;
    let problem: string | undefined;
    try {
      const outcome = await this.#file.append(captureRecord(sample));
      if (outcome === "written") this.#counts.captured += 1;
      else problem = outcome === "full" ? "the file has reached its limit" : "it is too long for one line";
    } catch (error) {
      problem = messageOf(error);
    }
    if (problem === undefined) return;
    this.#counts.lost += 1;
    if (isFirst) this.#logger.warn(`A sample was not captured: ${problem}.`);
  }
}
