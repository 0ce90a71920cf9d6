/** What one session samples with one adapter. Sessions take turns, and the adapters of a session among themselves. */
export interface Lane {
  readonly session: string;
  readonly weightsVersion: number;
  /** Requests that wait or run, and those of them that run. */
  requests: number;
  activeRequests: number;
  runningSamples: number;
  reservedPages: number;
}

/** The lanes that have requests. */
export class Lanes {
  readonly #sessions = new Map<string, Map<number, Lane>>();

  get size(): number {
    let lanes = 0;
    for (const session of this.#sessions.values()) lanes += session.size;
    return lanes;
  }

  /** Counts a request into its lane. */
  enter(session: string, weightsVersion: number): Lane {
    const lanes = this.#sessions.get(session) ?? new Map<number, Lane>();
    this.#sessions.set(session, lanes);
    const lane = lanes.get(weightsVersion) ?? {
      session,
      weightsVersion,
      requests: 0,
      activeRequests: 0,
      runningSamples: 0,
      reservedPages: 0,
    };
    lanes.set(weightsVersion, lane);
    lane.requests += 1;
    return lane;
  }

  leave(lane: Lane): void {
    lane.requests -= 1;
    if (lane.requests > 0) return;
    const lanes = this.#sessions.get(lane.session)!;
    lanes.delete(lane.weightsVersion);
    if (lanes.size === 0) this.#sessions.delete(lane.session);
  }

  /** What a lane may have of `total` while all others want as much as they can get. */
  shareOf(lane: Lane, total: number): number {
    const adapters = this.#sessions.get(lane.session)!.size;
    return Math.max(1, Math.floor(total / (this.#sessions.size * adapters)));
  }
}

/** The items one session after the other, in a session one adapter after the other; `turn` tells who begins. */
export function inTurns<T>(items: readonly T[], laneOf: (item: T) => Lane, turn: number): T[] {
  const sessions = groupBy(items, (item) => laneOf(item).session).map((ofSession) =>
    interleave(
      groupBy(ofSession, (item) => laneOf(item).weightsVersion),
      turn,
    ),
  );
  return interleave(sessions, turn);
}

function groupBy<T>(items: readonly T[], keyOf: (item: T) => unknown): T[][] {
  const groups = new Map<unknown, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return [...groups.values()];
}

function interleave<T>(lists: T[][], turn: number): T[] {
  if (lists.length <= 1) return lists[0] ?? [];
  const first = turn % lists.length;
  const ordered = [...lists.slice(first), ...lists.slice(0, first)];
  const longest = Math.max(...ordered.map((list) => list.length));
  const out: T[] = [];
  for (let index = 0; index < longest; index++) {
    for (const list of ordered) if (index < list.length) out.push(list[index]!);
  }
  return out;
}
