import type { Lane, Lanes } from "./lanes.js";
import type { SampleProgress } from "./sample-progress.js";

/** This part of the pages is kept for lanes that hold no more than it, so that most newcomers need not interrupt others. */
const NEWCOMERS_PAGES = 1 / 8;
/** A request that found no room so often takes it from all others, however much it needs. */
const MAX_PASSED_OVER = 128;
/** A request samples this many tokens before others may take its pages, so that taking turns brings all requests forward. */
const TURN_TOKENS = 32;

/** Reserved pages of the key-value cache by lane: reserved pages can be taken at any time. */
export class PageReservations {
  readonly #lanes: Lanes;
  readonly #maxPages: number;
  #reservedPages = 0;

  constructor(lanes: Lanes, maxPages: number) {
    this.#lanes = lanes;
    this.#maxPages = maxPages;
  }

  reserve(lane: Lane, pages: number): boolean {
    if (this.#missingPages(lane, pages) > 0) return false;
    this.release(lane, -pages);
    return true;
  }

  release(lane: Lane, pages: number): void {
    this.#reservedPages -= pages;
    lane.reservedPages -= pages;
  }

  /** Others wait for such a request. */
  isOverdue({ passedOver }: SampleProgress): boolean {
    return passedOver > MAX_PASSED_OVER;
  }

  /**
   * The requests whose pages would make room for `request`, or undefined where they are not enough: within its lane's
   * share, those of lanes that have more than theirs; for an overdue one, any. The lane that has most gives first, its
   * newest requests before the others.
   */
  giversFor(
    request: SampleProgress,
    active: readonly SampleProgress[],
    pagesOf: (request: SampleProgress) => number,
  ): SampleProgress[] | undefined {
    const { lane, pagesAtLeast } = request;
    const shareOf = (each: Lane) => this.#lanes.shareOf(each, this.#maxPages);
    const isOverdue = this.isOverdue(request);
    if (!isOverdue && lane.reservedPages + pagesAtLeast > shareOf(lane)) return undefined;
    const candidates = active
      .filter((other) => other.lane !== lane && other.tokensThisTurn >= TURN_TOKENS)
      .filter((other) => isOverdue || other.lane.reservedPages > shareOf(other.lane))
      .reverse()
      .sort((a, b) => b.lane.reservedPages - a.lane.reservedPages);
    let missing = this.#missingPages(lane, pagesAtLeast);
    const givers: SampleProgress[] = [];
    for (const candidate of candidates) {
      if (missing <= 0) break;
      missing -= pagesOf(candidate);
      givers.push(candidate);
    }
    return missing > 0 ? undefined : givers;
  }

  #missingPages(lane: Lane, pages: number): number {
    const kept = Math.floor(this.#maxPages * NEWCOMERS_PAGES);
    const mayTakeAll = lane.reservedPages + pages <= kept || pages > this.#maxPages - kept;
    return this.#reservedPages + pages - (mayTakeAll ? this.#maxPages : this.#maxPages - kept);
  }
}
