import { permutation } from "./permutation.js";
import { checkWhole, type Rows } from "./rows.js";

/** How rows are taken in batches. */
export interface BatchOptions {
  readonly batchSize: number;
  /** Decides the order of every epoch. Default: 0. */
  readonly seed?: number | undefined;
  /** Whether each epoch has an order of its own. Default: true; otherwise the rows come as they stand. */
  readonly shuffle?: boolean | undefined;
}

/** Which rows belong to which step. */
export interface Batches {
  readonly stepsPerEpoch: number;
  /** The rows of a step, counted from 0 over all epochs. The last batch of an epoch has what is left. */
  indices(step: number): readonly number[];
}

/** Cuts epochs into batches so that the number of a step alone decides its rows: a run that goes on needs no other state. */
export function batches(
  { length }: Pick<Rows<unknown>, "length">,
  { batchSize, seed = 0, shuffle = true }: BatchOptions,
): Batches {
  checkWhole("batchSize", batchSize, 1);
  checkWhole("seed", seed, 0);
  const stepsPerEpoch = Math.ceil(length / batchSize);
  let shuffled: { readonly epoch: number; readonly order: Uint32Array } | undefined;
  return {
    stepsPerEpoch,
    indices(step) {
      checkWhole("step", step, 0);
      if (length === 0) return [];
      const epoch = Math.floor(step / stepsPerEpoch);
      const start = (step % stepsPerEpoch) * batchSize;
      const size = Math.min(batchSize, length - start);
      if (!shuffle) return Array.from({ length: size }, (_, index) => start + index);
      if (shuffled?.epoch !== epoch) shuffled = { epoch, order: permutation(length, seed, epoch) };
      return Array.from(shuffled.order.subarray(start, start + size));
    },
  };
}
