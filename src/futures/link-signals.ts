/**
 * One signal that aborts with the first of several. Unlike `AbortSignal.any`, it is released explicitly, so a
 * long-lived source (a session, a user's own signal) keeps nothing of the thousands of requests it saw.
 */
export function linkSignals(...sources: (AbortSignal | undefined)[]): {
  controller: AbortController;
  signal: AbortSignal;
  release: () => void;
} {
  const controller = new AbortController();
  const releases: (() => void)[] = [];
  const release = () => {
    for (const undo of releases.splice(0)) undo();
  };
  for (const source of sources) {
    if (source === undefined) continue;
    if (source.aborted) {
      controller.abort(source.reason);
      break;
    }
    const abort = () => controller.abort(source.reason);
    source.addEventListener("abort", abort, { once: true });
    releases.push(() => source.removeEventListener("abort", abort));
  }
  return { controller, signal: controller.signal, release };
}
