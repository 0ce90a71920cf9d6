/** Keeps a training run going over failures of the server, the session or the network. */
export * from "./run-gave-up-error.js";
export * from "./run-with-recovery.js";
export type * from "./types.js";
