import { useEffect, useState } from "preact/hooks";

/** A value that the page shows, and that changes. */
export class PageStore<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

/** The value of a store; the component is drawn again when it changes. */
export function useStore<T>(store: PageStore<T>): T {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    const update = () => setValue(() => store.value);
    update();
    return store.subscribe(update);
  }, [store]);
  return value;
}

/** How something that was asked for stands. */
export interface Asked<T> {
  readonly answer?: T | undefined;
  readonly problem?: string | undefined;
  readonly isLoading: boolean;
  /** Asks again. */
  readonly again: () => void;
}

/** Asks when the page needs it, and again when `keys` change; what no longer matters is dropped. */
export function useAsked<T>(ask: (signal: AbortSignal) => Promise<T>, keys: readonly unknown[]): Asked<T> {
  const [count, setCount] = useState(0);
  const [state, setState] = useState<Omit<Asked<T>, "again">>({ isLoading: true });
  useEffect(() => {
    const gone = new AbortController();
    setState((before) => ({ ...before, isLoading: true }));
    ask(gone.signal).then(
      (answer) => !gone.signal.aborted && setState({ answer, isLoading: false }),
      (error: unknown) => !gone.signal.aborted && setState({ problem: problemOf(error), isLoading: false }),
    );
    return () => gone.abort();
  }, [count, ...keys]);
  return { ...state, again: () => setCount((before) => before + 1) };
}

/** An error as a text for people. */
export function problemOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
