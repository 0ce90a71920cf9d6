/** One listener per source signal, however many requests follow it: thousands may share a session's or a user's. */
const followersOf = new WeakMap<AbortSignal, Set<AbortController>>();

/**
 * One signal that aborts with the first of several. Unlike `AbortSignal.any`, it is released explicitly, so a
 * long-lived source keeps nothing of the requests it saw.
 */
export function linkSignals(...sources: (AbortSignal | undefined)[]): {
  controller: AbortController;
  signal: AbortSignal;
  release: () => void;
} {
  const controller = new AbortController();
  const releases: (() => void)[] = [];
  for (const source of sources) {
    if (source === undefined) continue;
    if (source.aborted) {
      controller.abort(source.reason);
      break;
    }
    releases.push(follow(source, controller));
  }
  const release = () => {
    for (const undo of releases.splice(0)) undo();
  };
  return { controller, signal: controller.signal, release };
}

function follow(source: AbortSignal, controller: AbortController): () => void {
  const followers = followersOf.get(source) ?? startFollowing(source);
  followers.add(controller);
  return () => {
    followers.delete(controller);
    if (followers.size > 0 || followersOf.get(source) !== followers) return;
    followersOf.delete(source);
    source.removeEventListener("abort", abortFollowers);
  };
}

function startFollowing(source: AbortSignal): Set<AbortController> {
  const followers = new Set<AbortController>();
  followersOf.set(source, followers);
  source.addEventListener("abort", abortFollowers, { once: true });
  return followers;
}

function abortFollowers(event: Event): void {
  const source = event.target as AbortSignal;
  const followers = followersOf.get(source);
  followersOf.delete(source);
  for (const controller of followers ?? []) controller.abort(source.reason);
}
