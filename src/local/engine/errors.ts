/** Errors that cross the worker boundary keep their class by name. */

/** The caller asked for something that cannot be done as asked; the message says which field and why. */
export class EngineInputError extends Error {
  override name = "EngineInputError";
}

export class CancelledError extends Error {
  override name = "CancelledError";
}
