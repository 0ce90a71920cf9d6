/** One page of a list. */
export class Page<T> {
  readonly items: readonly T[];
  /** How many items there are in all, where the server says so. */
  readonly totalCount: number | undefined;
  readonly #next: (() => PageRequest<T>) | undefined;

  constructor(
    items: readonly T[],
    options: { totalCount?: number | undefined; next?: (() => PageRequest<T>) | undefined },
  ) {
    this.items = items;
    this.totalCount = options.totalCount;
    this.#next = options.next;
  }

  hasNextPage(): boolean {
    return this.#next !== undefined;
  }

  nextPage(): PageRequest<T> {
    if (this.#next === undefined) throw new RangeError("This is the last page; ask hasNextPage() first.");
    return this.#next();
  }

  [Symbol.iterator](): Iterator<T> {
    return this.items[Symbol.iterator]();
  }
}

/** A list: await it for one page, or iterate over the items of all pages. */
export class PageRequest<T> implements PromiseLike<Page<T>>, AsyncIterable<T> {
  readonly #load: () => Promise<Page<T>>;
  #page: Promise<Page<T>> | undefined;

  constructor(load: () => Promise<Page<T>>) {
    this.#load = load;
  }

  // biome-ignore lint/suspicious/noThenProperty: a page can be awaited.
  then<A = Page<T>, B = never>(
    onFulfilled?: ((page: Page<T>) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#page ??= this.#load();
    return this.#page.then(onFulfilled, onRejected);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (let page = await this.then((first) => first); ; page = await page.nextPage()) {
      yield* page.items;
      if (!page.hasNextPage()) return;
    }
  }
}

/** A list that the server cuts by offset and limit. */
export function offsetPages<T>(
  load: (offset: number, limit: number) => Promise<{ items: readonly T[]; totalCount?: number | undefined }>,
  offset: number,
  limit: number,
): PageRequest<T> {
  return new PageRequest(async () => {
    const { items, totalCount } = await load(offset, limit);
    const end = offset + items.length;
    const more = items.length > 0 && (totalCount === undefined ? items.length >= limit : end < totalCount);
    return new Page(items, { totalCount, next: more ? () => offsetPages(load, end, limit) : undefined });
  });
}
