import { type Command, Option } from "commander";
import type { Page } from "tinkerts";
import type { CommandContext } from "../context.js";
import { wholeNumber } from "../option-values.js";

/** Largest page requested from a server. */
const PAGE_SIZE = 100;

/** Part of a list to show. */
export interface ListPart {
  /** Number of entries; 0 for all. */
  readonly limit: number;
  readonly offset?: number | undefined;
}

/** Adds `--limit`, the number of entries a list shows. */
export function addLimitFlag(command: Command): Command {
  const help = "maximum number of entries; 0 for all";
  return command.option("--limit <number>", help, wholeNumber(0, 1_000_000), 20);
}

/** Adds `--skip`, the number of entries a list leaves out. */
export function addOffsetFlag(command: Command): Command {
  return command.option("--offset <number>", "skip this many of the latest", wholeNumber(0, 1e9), 0);
}

/** The flag that selects your own entries or all accessible ones. */
export function accessScopeFlag(help: string): Option {
  return new Option("--access-scope <scope>", help).choices(["owned", "accessible"]).default("owned");
}

/** Page size that gets this many items in as few requests as possible; 0 means all. */
export function pageSize(limit: number): number {
  return limit === 0 ? PAGE_SIZE : Math.min(limit, PAGE_SIZE);
}

/** The first accepted items of a list, over as many pages as needed; also reports how many were left out. */
export async function takeItems<T>(
  { notify }: CommandContext,
  list: PromiseLike<Page<T>>,
  options: ListPart & { readonly accepts?: (item: T) => boolean },
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
