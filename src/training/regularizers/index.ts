/** Terms to add to a custom loss, and the loss that adds and reports them. */
export * from "./consistency.js";
export * from "./divergences.js";
export * from "./gradient-penalty.js";
export * from "./norms.js";
export * from "./orthogonality.js";
export type * from "./per-token.js";
export type * from "./report.js";
export type * from "./term.js";
export * from "./with-regularizers.js";
