import type { CreateCustomLossOptions, TrainingClient } from "../../clients/index.js";
import type { CustomLossHandle } from "../../training/custom-loss-handle.js";
import type { PerDatumLossFn } from "../../training/tracing/trace-loss.js";

/** A loss of one datum for training clients whose server runs losses: one pass instead of two. */
export class StoredLoss<Name extends string> {
  readonly #lossFn: PerDatumLossFn<Name>;
  readonly #options: CreateCustomLossOptions<Name>;
  readonly #handles = new WeakMap<object, CustomLossHandle>();

  constructor(lossFn: PerDatumLossFn<Name>, options: CreateCustomLossOptions<Name>) {
    this.#lossFn = lossFn;
    this.#options = options;
  }

  /** Uploads the loss, where the server runs losses. */
  async prepare(training: Pick<TrainingClient, "createCustomLoss">): Promise<void> {
    const handle = await training.createCustomLoss(this.#lossFn, this.#options);
    if (handle.lossId !== undefined) this.#handles.set(training, handle);
  }

  /** The uploaded loss; undefined where the loss runs in the client. */
  of(training: object): CustomLossHandle | undefined {
    return this.#handles.get(training);
  }
}
