import { APIPromise } from "../../transport/index.js";

/** One page of a list; iterate over it for its items. */
export class Page<T> {
  readonly items: readonly T[];
  /** Total number of items, if the server sends it. */
  readonly totalCount: number | undefined;
  readonly #next: (() => PagePromise<T>) | undefined;

  constructor(
    items: readonly T[],
    options: { totalCount?: number | undefined; next?: (() => PagePromise<T>) | undefined } = {},
  ) {
    this.items = items;
    this.totalCount = options.totalCount;
    this.#next = options.next;
  }

  /** Whether the list continues after this page. */
  hasNextPage(): boolean {
    return this.#next !== undefined;
  }

  /** Fetches the page after this one. */
  nextPage(): PagePromise<T> {
    if (this.#next === undefined) throw new RangeError("This is the last page; ask hasNextPage() first.");
    return this.#next();
  }

  [Symbol.iterator](): Iterator<T> {
    return this.items[Symbol.iterator]();
  }
}

/** A list: await it for one page, or iterate over the items of all pages, which are fetched as you go. */
export class PagePromise<T> extends APIPromise<Page<T>> implements AsyncIterable<T> {
  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (let page = await this.then((first) => first); ; page = await page.nextPage()) {
      yield* page.items;
      if (!page.hasNextPage()) return;
    }
  }
}
