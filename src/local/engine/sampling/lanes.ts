/** The short or the long requests of one session for one adapter; lanes take turns. */
export interface Lane {
  readonly owner: string;
  readonly session: string;
  readonly weightsVersion: number;
  readonly isShort: boolean;
  /** Requests that wait or run, and those of them that run. */
  requests: number;
  activeRequests: number;
  runningSamples: number;
  reservedPages: number;
}

/** The lanes that have requests. Owners take turns, then the sessions of each, then the lanes of each session. */
export class Lanes {
  readonly #owners = new Map<string, Map<string, Set<Lane>>>();

  get size(): number {
    let lanes = 0;
    for (const sessions of this.#owners.values())
      for (const session of sessions.values()) lanes += session.size;
    return lanes;
  }

  /** Counts a request into its lane. */
  enter(
    {
      owner = "",
      session = "",
    }: { readonly owner?: string | undefined; readonly session?: string | undefined },
    weightsVersion: number,
    isShort: boolean,
  ): Lane {
    const sessions = this.#owners.get(owner) ?? new Map<string, Set<Lane>>();
    this.#owners.set(owner, sessions);
    const lanes = sessions.get(session) ?? new Set();
    sessions.set(session, lanes);
    let lane = [...lanes].find((each) => each.weightsVersion === weightsVersion && each.isShort === isShort);
    if (lane === undefined) {
      lane = {
        owner,
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
    const sessions = this.#owners.get(lane.owner)!;
    const lanes = sessions.get(lane.session)!;
    lanes.delete(lane);
    if (lanes.size === 0) sessions.delete(lane.session);
    if (sessions.size === 0) this.#owners.delete(lane.owner);
  }

  /** A lane's share of `total` while all lanes ask for as much as they can get. */
  shareOf(lane: Lane, total: number): number {
    const sessions = this.#owners.get(lane.owner)!;
    const lanes = sessions.get(lane.session)!.size;
    return Math.max(1, Math.floor(total / (this.#owners.size * sessions.size * lanes)));
  }
}

/** The items one owner after the other, then one session, then one lane; `turn` decides which begins. */
export function inTurns<T>(items: readonly T[], laneOf: (item: T) => Lane, turn: number): T[] {
  const ofOwner = (owned: readonly T[]) =>
    interleave(
      groupBy(owned, (item) => laneOf(item).session).map((ofSession) =>
        interleave(groupBy(ofSession, laneOf), turn),
      ),
      turn,
    );
  return interleave(groupBy(items, (item) => laneOf(item).owner).map(ofOwner), turn);
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
