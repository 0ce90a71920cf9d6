/** What takes turns with others: the short or the long requests that one session has for one adapter. */
export interface Lane {
  readonly session: string;
  readonly weightsVersion: number;
  readonly isShort: boolean;
  /** Requests that wait or run, and those of them that run. */
  requests: number;
  activeRequests: number;
  runningSamples: number;
  reservedPages: number;
}

/** The lanes that have requests. Sessions take turns, and the lanes of a session among themselves. */
export class Lanes {
  readonly #sessions = new Map<string, Set<Lane>>();

  get size(): number {
    let lanes = 0;
    for (const session of this.#sessions.values()) lanes += session.size;
    return lanes;
  }

  /** Counts a request into its lane. */
  enter(session: string, weightsVersion: number, isShort: boolean): Lane {
    const lanes = this.#sessions.get(session) ?? new Set();
    this.#sessions.set(session, lanes);
    let lane = [...lanes].find((each) => each.weightsVersion === weightsVersion && each.isShort === isShort);
    if (lane === undefined) {
      lane = {
        session,
        weightsVersion,
        isShort,
        requests: 0,
        activeRequests: 0,
        runningSamples: 0,
        reservedPages: 0,
      };
      lanes.add(lane);
    }
    lane.requests += 1;
    return lane;
  }

  leave(lane: Lane): void {
    lane.requests -= 1;
    if (lane.requests > 0) return;
    const lanes = this.#sessions.get(lane.session)!;
    lanes.delete(lane);
    if (lanes.size === 0) this.#sessions.delete(lane.session);
  }

  /** What a lane may have of `total` while all others want as much as they can get. */
  shareOf(lane: Lane, total: number): number {
    const lanes = this.#sessions.get(lane.session)!.size;
    return Math.max(1, Math.floor(total / (this.#sessions.size * lanes)));
  }
}

/** The items one session after the other, in a session one lane after the other; `turn` tells who begins. */
export function inTurns<T>(items: readonly T[], laneOf: (item: T) => Lane, turn: number): T[] {
  const sessions = groupBy(items, (item) => laneOf(item).session).map((ofSession) =>
    interleave(groupBy(ofSession, laneOf), turn),
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
