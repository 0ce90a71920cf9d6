import type { SamplingClient, TrainingClient } from "../../clients/index.js";
import { Datum } from "../../wire/index.js";
import { type LogprobSource, logprobsUnder } from "../reinforcement/index.js";

/** The same data with the logprobs that a reference gives their targets, as `refLogprobs`; they never go to the server. */
export async function withReference(
  data: readonly Datum[],
  reference: LogprobSource,
  { signal }: { readonly signal?: AbortSignal | undefined } = {},
): Promise<Datum[]> {
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

/** What a run keeps with its checkpoints, so that it has the same reference when it goes on. */
export interface ReferenceState {
  /** The `tinker://` path of the weights that the run began with. */
  readonly referencePath: string;
}

/** The weights that a run began with: saved before its first step, and fixed from then on. */
export class StartingWeights {
  #saving: Promise<string> | undefined;
  readonly #samplers = new WeakMap<TrainingClient, Promise<SamplingClient>>();

  /** Where they are. Without a state the run is at its beginning: they are saved now, by a request that is sent at once. */
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

  /** The data with the logprobs that these weights give their targets. */
  async score(
    data: readonly Datum[],
    training: TrainingClient,
    state: ReferenceState | undefined,
    signal: AbortSignal,
  ): Promise<readonly Datum[]> {
    const path = await this.path(training, state, signal);
    return withReference(data, await this.#sampler(training, path, signal), { signal });
  }

  /** Each client that trains has its own, since a lost session takes its samplers with it. */
  #sampler(training: TrainingClient, path: string, signal: AbortSignal): Promise<SamplingClient> {
    const known = this.#samplers.get(training);
    if (known !== undefined) return known;
    const opening = training.createSamplingClient(path, { signal });
    opening.catch(() => this.#samplers.delete(training));
    this.#samplers.set(training, opening);
    return opening;
  }
}
