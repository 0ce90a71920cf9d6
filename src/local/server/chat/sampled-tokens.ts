import { decodeSampleResponse } from "../../../wire/protobuf.js";
import type { SampleResponse } from "../../../wire/sampling/sampling-types.js";
import type { SampledToken } from "../../engine/engine.js";
import type { Future, FutureStore } from "../futures/future-store.js";
import { HttpError } from "../http/http-error.js";
import type { Identity } from "../http/route.js";
import type { SampleWork } from "../sampling/sample-call.js";
import type { SampleRuns } from "../sampling/sample-runs.js";
import type { SampledModel } from "../sampling/sampling-sessions.js";

/** A token and its logprob. */
export type ScoredToken = readonly [token: number, logprob: number];

/** What is heard of the samples of a request. Samples are numbered over all its prompts. */
export type SampleEvent =
  | {
      readonly type: "token";
      readonly index: number;
      readonly scored: ScoredToken;
      /** The likeliest at this place, best first. */
      readonly top: readonly ScoredToken[];
    }
  | { readonly type: "end"; readonly index: number; readonly stopReason: "stop" | "length" }
  /** Once for each prompt, when all its samples are done; where they are not told live, before them. */
  | { readonly type: "prompt"; readonly prompt: number; readonly response: SampleResponse };

/** What sampling needs of the server. */
export interface SampleServices {
  readonly sampleRuns: SampleRuns;
  readonly futures: FutureStore;
}

/** The samples of a request: of whom, from which weights, and what. */
export interface SampleOrder {
  readonly identity: Identity;
  readonly model: SampledModel;
  /** One for each prompt, all with as many samples. */
  readonly works: readonly SampleWork[];
  /** Tokens are told as they are drawn; otherwise when all samples of their prompt are done. */
  readonly isLive: boolean;
  readonly signal: AbortSignal;
}

const POLL_MS = 60_000;

/** Draws samples and tells of them; whoever stops listening ends them. */
export async function* sampleEvents(
  { sampleRuns, futures }: SampleServices,
  { identity, model, works, isLive, signal }: SampleOrder,
): AsyncGenerator<SampleEvent, void, undefined> {
  const started: Future[] = [];
  let waiting: SampleEvent[] = [];
  let unfinished = works.length;
  let failure: unknown;
  let wake = () => {};
  const tell = (event: SampleEvent) => {
    waiting.push(event);
    wake();
  };
  let isGivenUp = false;
  const giveUp = () => {
    isGivenUp = true;
    for (const future of started) {
      if (future.outcome === undefined) future.cancel();
      else futures.forget(future);
    }
  };
  try {
    for (const [prompt, work] of works.entries()) {
      const told = new SampleTeller(prompt, work.numSamples, tell);
      const onToken = isLive ? (token: SampledToken) => told.tell(token) : undefined;
      const future = sampleRuns.startAlone(identity, model, work, {
        onToken,
        onEnd: () => isGivenUp && futures.forget(future),
      });
      started.push(future);
      responseOf(futures, future, signal)
        .then((response) => {
          told.end(response);
          unfinished -= 1;
        })
        .catch((error: unknown) => {
          failure ??= error;
          // Also where nobody asks for the next event, as when a client is gone.
          giveUp();
        })
        .finally(() => wake());
    }
    for (;;) {
      const events = waiting;
      waiting = [];
      yield* events;
      if (waiting.length > 0) continue;
      if (failure !== undefined) throw failure;
      if (unfinished === 0) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  } finally {
    giveUp();
  }
}

/** Numbers a prompt's samples, and tells at the end what was not told as it came. */
class SampleTeller {
  readonly #prompt: number;
  readonly #first: number;
  readonly #tell: (event: SampleEvent) => void;
  readonly #told: number[];
  readonly #ended = new Set<number>();

  constructor(prompt: number, samples: number, tell: (event: SampleEvent) => void) {
    this.#prompt = prompt;
    this.#first = prompt * samples;
    this.#tell = tell;
    this.#told = new Array<number>(samples).fill(0);
  }

  tell({ index, token, logprob, topk, stopReason }: SampledToken): void {
    this.#told[index]! += 1;
    const top = Array.from(topk?.tokens ?? [], (id, place): ScoredToken => [id, topk!.logprobs[place]!]);
    this.#tell({ type: "token", index: this.#first + index, scored: [token, logprob], top });
    if (stopReason !== undefined) this.#end(index, stopReason);
  }

  end(response: SampleResponse): void {
    this.#tell({ type: "prompt", prompt: this.#prompt, response });
    for (const [sample, { tokens, logprobs, topkLogprobs, stopReason }] of response.sequences.entries()) {
      const index = this.#first + sample;
      for (let place = this.#told[sample]!; place < tokens.length; place += 1) {
        const scored: ScoredToken = [tokens[place]!, logprobs?.[place] ?? 0];
        this.#tell({ type: "token", index, scored, top: topkLogprobs?.[place] ?? [] });
      }
      this.#end(sample, stopReason === "length" ? "length" : "stop");
    }
  }

  #end(sample: number, stopReason: "stop" | "length"): void {
    if (this.#ended.has(sample)) return;
    this.#ended.add(sample);
    this.#tell({ type: "end", index: this.#first + sample, stopReason });
  }
}

async function responseOf(
  futures: FutureStore,
  future: Future,
  signal: AbortSignal,
): Promise<SampleResponse> {
  while (future.outcome === undefined && !signal.aborted && !futures.isClosed)
    await futures.wait(future, POLL_MS, signal);
  const { outcome } = future;
  if (outcome === undefined)
    throw new HttpError(503, "The request was given up before its answer was ready.");
  if (outcome.type === "failed") throw new HttpError(outcome.category === "user" ? 400 : 500, outcome.error);
  if (outcome.type !== "encoded") throw new Error("The engine gave no samples.");
  return decodeSampleResponse(outcome.bytes);
}
