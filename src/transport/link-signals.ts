import { onAbort } from "./abort.js";
import { Interruption } from "./interruption.js";

/**
 * One signal that aborts with the first of several. Unlike `AbortSignal.any`, it is released explicitly, so a
 * long-lived source (a session, a user's own signal) keeps nothing of the thousands of requests it saw.
 */
export function linkSignals(...sources: (AbortSignal | undefined)[]): {
  signal: Interruption;
  release: () => void;
} {
  const signal = new Interruption();
  const releases: (() => void)[] = [];
  for (const source of sources) {
    if (source?.aborted) signal.abort(source.reason);
    else releases.push(onAbort(source, () => signal.abort(source?.reason)));
  }
  const release = () => {
    for (const undo of releases.splice(0)) undo();
  };
  return { signal, release };
}
