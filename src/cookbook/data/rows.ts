import { wrongValue } from "../../wire/index.js";

/** Rows that can be read in any order, as many at a time as a batch needs. */
export interface Rows<T> {
  readonly length: number;
  /** The rows at these places, in the order asked for. Throws for a row that is wrong, and names it. */
  read(indices: readonly number[]): Promise<readonly T[]>;
  /** Where a row comes from, for people: `chats.jsonl line 12`. */
  place(index: number): string;
}

/** Rows with a file behind them: whoever opened them closes them. */
export interface OpenRows<T> extends Rows<T>, AsyncDisposable {
  close(): Promise<void>;
}

/** Where rows come from. Nothing is read before `open`. */
export interface Source<T> {
  open(): Promise<OpenRows<T>>;
}

/** Rows with the `close` of what they are read from, which is done once however often it is asked for. */
export function openRows<T>(rows: Rows<T>, release: () => Promise<unknown>): OpenRows<T> {
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= release().then(() => {});
    return closing;
  };
  return { ...rows, close, [Symbol.asyncDispose]: close };
}

/** Opens several one after the other; all or none. */
export async function openAll<T>(sources: readonly Source<T>[]): Promise<readonly OpenRows<T>[]> {
  const opened: OpenRows<T>[] = [];
  try {
    for (const source of sources) opened.push(await source.open());
    return opened;
  } catch (error) {
    await Promise.all(opened.map((rows) => rows.close()));
    throw error;
  }
}

/** Rows of a list that is in memory. */
export function listRows<T>(items: readonly T[]): OpenRows<T> {
  const rows: Rows<T> = {
    length: items.length,
    read: async (indices) => indices.map((index) => items[index]!),
    place: (index) => `row ${index + 1}`,
  };
  return openRows(rows, async () => {});
}

/** The same rows, each made into something else when it is read. */
export function mapRows<T, U>(rows: OpenRows<T>, change: (row: T, index: number) => U): OpenRows<U> {
  const changed: Rows<U> = {
    length: rows.length,
    read: async (indices) => {
      const read = await rows.read(indices);
      return read.map((row, place) => change(row, indices[place]!));
    },
    place: rows.place,
  };
  return openRows(changed, rows.close);
}

/** Some rows of others, in an order of their own. */
export function selectRows<T>(rows: Rows<T>, indices: ArrayLike<number>): Rows<T> {
  return {
    length: indices.length,
    read: (wanted) => rows.read(wanted.map((index) => indices[index]!)),
    place: (index) => rows.place(indices[index]!),
  };
}

/** Rows of several as one: at each place the row `rowAt` of the part `partAt`. */
export function joinRows<T>(
  parts: readonly OpenRows<T>[],
  partAt: ArrayLike<number>,
  rowAt: ArrayLike<number>,
): OpenRows<T> {
  const joined: Rows<T> = {
    length: partAt.length,
    read: async (indices) => {
      const found = new Array<T>(indices.length);
      const readPart = async (rows: Rows<T>, part: number) => {
        const places = [...indices.keys()].filter((place) => partAt[indices[place]!] === part);
        const read = await rows.read(places.map((place) => rowAt[indices[place]!]!));
        for (const [order, place] of places.entries()) found[place] = read[order]!;
      };
      await Promise.all(parts.map(readPart));
      return found;
    },
    place: (index) => parts[partAt[index]!]!.place(rowAt[index]!),
  };
  return openRows(joined, () => Promise.all(parts.map((rows) => rows.close())));
}

/** Refuses what is not a whole number, or too small. */
export function checkWhole(field: string, value: number, least: number): void {
  if (!Number.isSafeInteger(value) || value < least) {
    throw wrongValue(field, `a whole number from ${least}`, value);
  }
}
