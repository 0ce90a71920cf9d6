/** Terms to add to a custom loss, and the loss that adds and reports them. */
export { type ConsistencyKind, type ConsistencyOptions, consistency } from "./consistency.js";
export { type EntropyOptions, entropy, type KlOptions, klToReference } from "./divergences.js";
export { gradientPenalty } from "./gradient-penalty.js";
export { elasticNet, l1, l2, type NormOptions } from "./norms.js";
export { orthogonality } from "./orthogonality.js";
export type { PerDatum, TokenOptions } from "./per-token.js";
export type { RegularizerReport, TermReport } from "./report.js";
export type { Term, TermInput } from "./term.js";
export { type Regularizer, withRegularizers } from "./with-regularizers.js";
