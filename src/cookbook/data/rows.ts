/** Rows that can be read in any order, as many at a time as a batch needs. */
export interface Rows<T> {
  readonly length: number;
  /** The rows at these positions, in the given order. Throws for an invalid row and names it. */
  read(indices: readonly number[]): Promise<readonly T[]>;
  /** Origin of a row, for messages: `chats.jsonl line 12`. */
  place(index: number): string;
  /** Formats of the rows that were read so far, where rows may have several. */
  readonly formats?: ReadonlySet<string> | undefined;
}

/** Rows read from a file, which the caller closes. */
export interface OpenRows<T> extends Rows<T>, AsyncDisposable {
  close(): Promise<void>;
}

/** A source of rows. Nothing is read before `open`. */
export interface Source<T> {
  open(): Promise<OpenRows<T>>;
}

/** Rows with the `close` of their source, which runs only once. */
export function openRows<T>(rows: Rows<T>, release: () => Promise<unknown>): OpenRows<T> {
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= release().then(() => {});
    return closing;
  };
  return { ...rows, close, [Symbol.asyncDispose]: close };
}

/** Opens several sources one after the other; if one fails, closes the others. */
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

/** Positions of rows, in chunks that are read together. */
export function* placesOf({ length }: Pick<Rows<unknown>, "length">, atOnce: number): Generator<number[]> {
  for (let start = 0; start < length; start += atOnce)
    yield Array.from({ length: Math.min(atOnce, length - start) }, (_, place) => start + place);
}

/** Reads all rows at once. */
export function readAll<T>(rows: Pick<Rows<T>, "length" | "read">): Promise<readonly T[]> {
  return rows.read([...Array(rows.length).keys()]);
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

/** Rows that are converted when they are read. */
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

/** A selection of other rows, in its own order. */
export function selectRows<T>(rows: Rows<T>, indices: ArrayLike<number>): Rows<T> {
  return {
    length: indices.length,
    read: (wanted) => rows.read(wanted.map((index) => indices[index]!)),
    place: (index) => rows.place(indices[index]!),
  };
}

/** Several sets of rows as one: each position holds the row `rowAt` of the part `partAt`. */
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

/** Several sets of rows as one, each behind the one before. */
export function chainRows<T>(parts: readonly OpenRows<T>[]): OpenRows<T> {
  if (parts.length === 1) return parts[0]!;
  const length = parts.reduce((sum, rows) => sum + rows.length, 0);
  const partAt = new Uint32Array(length);
  const rowAt = new Uint32Array(length);
  let start = 0;
  for (const [part, rows] of parts.entries()) {
    const end = start + rows.length;
    partAt.fill(part, start, end);
    for (let position = start; position < end; position += 1) rowAt[position] = position - start;
    start = end;
  }
  return joinRows(parts, partAt, rowAt);
}
