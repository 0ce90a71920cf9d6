import * as f from "../../wire/fields/index.js";
import { permutation } from "./permutation.js";
import type { Rows } from "./rows.js";

/** How rows are grouped into batches. */
export interface BatchOptions {
  readonly batchSize: number;
  /** Seed of the order of every epoch. Default: 0. */
  readonly seed?: number | undefined;
  /** Whether each epoch has its own order. Default: true; otherwise rows keep their order. */
  readonly shuffle?: boolean | undefined;
}

/** The option table of `batches`. */
export const BATCH_OPTIONS = f.optionTable({
  batchSize: f.option(f.positiveInteger, "rows in a step"),
  seed: f.option(f.withDefault(f.nonNegativeInteger, 0), "seed of the order of every epoch"),
  shuffle: f.option(f.withDefault(f.boolean, true), "give each epoch an order of its own"),
} satisfies f.OptionsOf<BatchOptions>);

/** Assigns rows to steps. */
export interface Batches {
  readonly stepsPerEpoch: number;
  /** The rows of a step, counted from 0 over all epochs. The last batch of an epoch has the remaining rows. */
  indices(step: number): readonly number[];
}

/** Cuts epochs into batches so that the number of a step alone decides its rows: a resumed run needs no other state. */
export function batches({ length }: Pick<Rows<unknown>, "length">, options: BatchOptions): Batches {
  const { batchSize, seed, shuffle } = BATCH_OPTIONS.check(options, "batches");
  const stepsPerEpoch = Math.ceil(length / batchSize);
  let shuffled: { readonly epoch: number; readonly order: Uint32Array } | undefined;
  return {
    stepsPerEpoch,
    indices(step) {
      f.nonNegativeInteger.check(step, "step");
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
