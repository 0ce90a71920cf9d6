import type { Page } from "tinkerts";
import type { CommandContext } from "../context.js";
import { wholeNumber } from "../option-values.js";

/** Most items a server is asked for at once. */
const PAGE_SIZE = 100;

/** How many items a list shows unless told otherwise. */
export const DEFAULT_LIMIT = 20;

export const limitValue = wholeNumber(0, 1_000_000);
export const offsetValue = wholeNumber(0, 1_000_000_000);

/** The page size that gets so many items in as few requests as possible; 0 stands for all. */
export function pageSize(limit: number): number {
  return limit === 0 ? PAGE_SIZE : Math.min(limit, PAGE_SIZE);
}

/** The first items of a list that are accepted, over as many pages as it takes; says how many were left out. */
export async function takeItems<T>(
  { notify }: CommandContext,
  list: PromiseLike<Page<T>>,
  options: { limit: number; offset?: number; accepts?: (item: T) => boolean },
): Promise<T[]> {
  const { offset = 0, accepts = () => true } = options;
  const limit = options.limit === 0 ? Number.POSITIVE_INFINITY : options.limit;
  const items: T[] = [];
  for (let page = await list; ; page = await page.nextPage()) {
    const accepted = page.items.filter(accepts);
    const isMore = page.hasNextPage() || items.length + accepted.length > limit;
    items.push(...accepted.slice(0, limit - items.length));
    if (isMore && items.length < limit) continue;
    const left = page.totalCount === undefined ? 0 : page.totalCount - offset - items.length;
    if (left > 0) notify(`${left} more; --limit 0 shows all`);
    else if (isMore) notify("there are more; --limit 0 shows all");
    return items;
  }
}
