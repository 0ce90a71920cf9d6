import type { SamplingClient, TrainingClient } from "../../clients/index.js";
import * as f from "../../wire/fields/index.js";
import { Datum } from "../../wire/index.js";
import { type LogprobSource, logprobsUnder } from "../reinforcement/index.js";

/** The option table of `withReference`. */
export const REFERENCE_OPTIONS = f.optionTable({
  signal: f.option(f.optional(f.abortSignal), "ends the call"),
});

/** Adds a reference's logprobs of the targets as `refLogprobs`; they are never sent to the server. */
export async function withReference(
  data: readonly Datum[],
  reference: LogprobSource,
  options: { readonly signal?: AbortSignal | undefined } = {},
): Promise<Datum[]> {
  const { signal } = REFERENCE_OPTIONS.check(options, "withReference");
  const sequences = data.map(({ modelInput, lossFnInputs: { targetTokens, weights } }) => ({
    input: modelInput,
    targetTokens: Int32Array.from(targetTokens!.toDense().data),
    mask: Float32Array.from(weights!.toDense().data),
  }));
  const logprobs = await logprobsUnder(reference, sequences, signal);
  return data.map(
    ({ modelInput, lossFnInputs }, place) =>
      new Datum({ modelInput, lossFnInputs: { ...lossFnInputs, refLogprobs: logprobs[place]! } }),
  );
}

/** Stored with the checkpoints of a run, so that a resumed run has the same reference. */
export interface ReferenceState {
  /** The `tinker://` path of the weights that the run began with. */
  readonly referencePath: string;
}

/** The weights that a run began with: saved before its first step and never changed. */
export class StartingWeights {
  #saving: Promise<string> | undefined;
  readonly #samplers = new WeakMap<TrainingClient, Promise<SamplingClient>>();

  /**
   * Finds or saves the reference. Without a state the run is at its beginning: the weights are saved now, by a request
   * that is sent at once.
   */
  path(training: TrainingClient, state: ReferenceState | undefined, signal: AbortSignal): Promise<string> {
    if (state !== undefined) return Promise.resolve(state.referencePath);
    this.#saving ??= this.#save(training, signal);
    return this.#saving;
  }

  async #save(training: TrainingClient, signal: AbortSignal): Promise<string> {
    try {
      return (await training.saveWeightsForSampler("reference", { signal })).path;
    } catch (error) {
      this.#saving = undefined;
      throw error;
    }
  }

  /** The data with the logprobs of their targets under these weights. */
  async score(
    data: readonly Datum[],
    training: TrainingClient,
    state: ReferenceState | undefined,
    signal: AbortSignal,
  ): Promise<readonly Datum[]> {
    const path = await this.path(training, state, signal);
    return withReference(data, await this.#sampler(training, path, signal), { signal });
  }

  /** Each training client has its own, because a lost session loses its samplers too. */
  #sampler(training: TrainingClient, path: string, signal: AbortSignal): Promise<SamplingClient> {
    const known = this.#samplers.get(training);
    if (known !== undefined) return known;
    const opening = training.createSamplingClient(path, { signal });
    opening.catch(() => this.#samplers.delete(training));
    this.#samplers.set(training, opening);
    return opening;
  }
}
