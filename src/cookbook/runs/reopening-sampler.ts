import type { SamplerSource, SamplingClient, ServiceClient } from "../../clients/index.js";
import { isTinkerPath } from "../../wire/index.js";

/** Source of a sampler: saved weights or a base model. */
export function weightsSource(weights: string): SamplerSource {
  return isTinkerPath(weights) ? { modelPath: weights } : { baseModel: weights };
}

interface OpenSampler {
  readonly service: ServiceClient;
  readonly sampler: Promise<SamplingClient>;
  users: number;
}

/** A sampler that is opened again after a failure: a restarted server does not know the old one. */
export class ReopeningSampler implements AsyncDisposable {
  readonly #service: ServiceClient;
  readonly #weights: string;
  #open: OpenSampler | undefined;

  constructor(service: ServiceClient, weights: string) {
    this.#service = service;
    this.#weights = weights;
  }

  /** Calls with the sampler. A call that fails ends it for later calls, unless its own `signal` ended the call. */
  async use<R>(call: (sampler: SamplingClient) => PromiseLike<R>, signal?: AbortSignal): Promise<R> {
    this.#open ??= this.#reopen();
    const open = this.#open;
    open.users += 1;
    try {
      return await call(await open.sampler);
    } catch (error) {
      if (this.#open === open && signal?.aborted !== true) this.#open = undefined;
      throw error;
    } finally {
      open.users -= 1;
      // Not before the last one: to the others, a closed client would hide what went wrong.
      if (this.#open !== open && open.users === 0) await open.service.close();
    }
  }

  async close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    await open?.service.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #reopen(): OpenSampler {
    const service = this.#service.clone();
    const sampler = service.createSamplingClient(weightsSource(this.#weights));
    // The call that awaits it gets the error.
    sampler.catch(() => {});
    return { service, sampler, users: 0 };
  }
}
