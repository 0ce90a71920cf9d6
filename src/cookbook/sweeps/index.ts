/** Many runs of one kind of training: each setting of a grid or a list in a folder of its own, compared by a metric. */
export * from "./settings-grid.js";
export * from "./sweep.js";
export * from "./sweep-record.js";
