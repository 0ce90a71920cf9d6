import { APIUserAbortError } from "../errors.js";
import { Interruption } from "./interruption.js";

/** The error of a call whose signal was aborted; `what` names the call. */
export function abortError(signal: AbortSignal, what = "The call"): APIUserAbortError {
  return new APIUserAbortError(`${what} was aborted by its signal.`, { cause: signal.reason });
}

/** Throws when the signal has been aborted; `what` names the call. */
export function throwIfAborted(signal: AbortSignal | undefined, what?: string): void {
  if (signal?.aborted) throw abortError(signal, what);
}

/** The promise's outcome, or an error as soon as the signal aborts. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      promise.catch(() => {});
      return reject(abortError(signal));
    }
    const release = onAbort(signal, () => reject(abortError(signal)));
    promise.then(resolve, reject).finally(release);
  });
}

interface Registration {
  readonly callbacks: Set<() => void>;
  readonly listener: () => void;
}

const registrations = new WeakMap<AbortSignal, Registration>();

/**
 * Calls back once when the signal aborts; the returned function unsubscribes. All subscribers of a signal share
 * one listener, because thousands of calls under one signal are normal here and Node warns of a leak at eleven.
 */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): () => void {
  if (signal === undefined) return () => {};
  // A function may be subscribed twice, so each subscription wraps it.
  const subscriber = () => callback();
  if (signal instanceof Interruption) return signal.subscribe(subscriber);
  const registration = registrations.get(signal) ?? register(signal);
  registration.callbacks.add(subscriber);
  return () => {
    if (!registration.callbacks.delete(subscriber) || registration.callbacks.size > 0) return;
    signal.removeEventListener("abort", registration.listener);
    registrations.delete(signal);
  };
}

function register(signal: AbortSignal): Registration {
  const callbacks = new Set<() => void>();
  const listener = () => {
    registrations.delete(signal);
    for (const callback of [...callbacks]) if (callbacks.delete(callback)) callback();
  };
  const registration = { callbacks, listener };
  registrations.set(signal, registration);
  signal.addEventListener("abort", listener, { once: true });
  return registration;
}
