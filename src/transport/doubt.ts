import { APIConnectionError, APIError } from "../errors.js";

/** Errors of calls whose earlier tries were lost on the way. */
const afterLostTry = new WeakSet<Error>();

/** Notes that an earlier try of the call that ended so may have reached the server. */
export function markDoubtful<E>(error: E): E {
  if (error instanceof Error) afterLostTry.add(error);
  return error;
}

/** Whether the request that ended so may have reached the server all the same. */
export function isDoubtful(error: unknown): boolean {
  if (error instanceof Error && afterLostTry.has(error)) return true;
  if (error instanceof APIError) return error.status === 408 || error.status >= 500;
  return error instanceof APIConnectionError;
}
