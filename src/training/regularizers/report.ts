/** Report on one regularizer's part of a loss. */
export interface TermReport {
  readonly name: string;
  readonly value: number;
  readonly weight: number;
  /** `weight * value`, what the term added to the loss. */
  readonly contribution: number;
  /** Euclidean norm of the contribution's gradient by all logprobs. */
  readonly gradientNorm: number;
}

/** A regularized loss, term by term: `total` is `base.value` and all contributions. */
export interface RegularizerReport {
  readonly base: { readonly value: number; readonly gradientNorm: number };
  readonly terms: readonly TermReport[];
  readonly total: number;
  /** Euclidean norm of the total's gradient by all logprobs. */
  readonly gradientNorm: number;
}
