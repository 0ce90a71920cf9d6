import type { AttentionShape, F32, Frozen, I32, RotaryAngles } from "./kernels.js";

/** Low-rank adapters of linear layers that read the same input: one A side by side, so that it needs one product, one B for each. */
export interface LowRankGroup {
  rank: number;
  scaling: number;
  /** [in, parts * rank]. */
  a: F32;
  /** Per layer: [rank, out], and the column where its output starts in the fused output. */
  b: { matrix: F32; column: number; cols: number }[];
}

/** `out` += `factor` * `lowRank` * B of every layer of the group; rows of `out` are `stride` apart. */
export interface AddLowRank {
  out: F32;
  stride: number;
  rows: number;
  /** [rows, layers * rank]. */
  lowRank: F32;
  group: LowRankGroup;
  factor: number;
}

/** Pages of `pageLength` values are copied, in no order: for each pair, its first page to its second. */
export interface CopyPages {
  keyPages: F32;
  valuePages: F32;
  /** [count, 2]; no page is written twice, or read and written. */
  pairs: I32;
  count: number;
  pageLength: number;
}

/** The linear layers of a block with their norms and biases. */
export interface BlockMatrices {
  qkv: Frozen;
  output: Frozen;
  gateUp: Frozen;
  down: Frozen;
  inputNorm: F32;
  postNorm: F32;
  queryNorm: F32 | undefined;
  keyNorm: F32 | undefined;
  qkvBias: F32 | undefined;
  outputBias: F32 | undefined;
}

/** Adapters of a block's linear layers, where it has them. */
export type BlockAdapter = Record<"qkv" | "output" | "gateUp" | "down", LowRankGroup | undefined>;

/** Where a row's keys and values are, as `AttentionPaged` and `RotateIntoPages` say; the tables are parts of one buffer. */
export interface PagedRows {
  keyPages: F32;
  valuePages: F32;
  positions: I32;
  slots: I32;
  lengths: I32;
  pageTables: I32;
  pagesPerRow: number;
  pageSize: number;
}

/** A whole block of the decoder, in place. Each row is the last token of a sequence of its own; one adapter, or none, is on all of them. */
export interface FewRowBlock {
  /** The residual stream, [rows, inputs of `qkv`]. */
  x: F32;
  rows: number;
  weights: BlockMatrices;
  adapter: BlockAdapter | undefined;
  pages: PagedRows;
  angles: Omit<RotaryAngles, "positions">;
  shape: AttentionShape;
  eps: number;
}

/** The last norm and the head: `out` = norm(`x`) * weight + what the adapter adds. */
export interface FewRowHead {
  out: F32;
  x: F32;
  rows: number;
  norm: F32;
  weight: Frozen;
  adapter: LowRankGroup | undefined;
  eps: number;
}

/** Larger operations for devices that take longer to start one than to compute it for a few rows. */
export interface FewRowKernels {
  readonly maxRows: number;
  /** Whether they can be used for so many rows, with adapters of at most this rank (0: none). */
  fit(rows: number, shape: AttentionShape, rank: number): boolean;
  block(operation: FewRowBlock): void;
  head(operation: FewRowHead): void;
}
