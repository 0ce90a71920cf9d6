/** A parsed answer together with the response it came in. */
export interface ParsedAnswer<T> {
  readonly data: T;
  readonly response: Response;
}

/** An answer, parsed or as the server sent it. */
export interface AnswerSource<T> {
  /** Reads the whole body; retried also when the connection breaks in the middle of it. */
  parsed(): Promise<ParsedAnswer<T>>;
  /** Resolves with the headers, the body still to come. */
  raw(): Promise<Response>;
}

/** A call to an endpoint: await it for the parsed answer, or ask for the response itself. */
export class APIPromise<T> implements Promise<T> {
  readonly [Symbol.toStringTag] = "APIPromise";
  readonly #source: AnswerSource<T>;
  #parsed: Promise<ParsedAnswer<T>> | undefined;
  #raw: Promise<Response> | undefined;

  constructor(source: AnswerSource<T>) {
    this.#source = source;
    // Sent at once, like any call, but only after the caller had the chance to ask for the raw response.
    queueMicrotask(() => {
      if (this.#raw === undefined) this.#start();
    });
  }

  /**
   * The response as it came, its body not yet read: read it to its end or cancel it. Asked for later than at the
   * call itself, the body has already been read and is given from memory.
   */
  asResponse(): Promise<Response> {
    if (this.#parsed !== undefined) return this.#parsed.then(({ response }) => response.clone());
    this.#raw ??= this.#source.raw();
    return this.#raw;
  }

  /** The parsed answer together with the response it came in. */
  withResponse(): Promise<ParsedAnswer<T>> {
    return this.#start();
  }

  // biome-ignore lint/suspicious/noThenProperty: this class is a promise.
  then<TResult1 = T, TResult2 = never>(
    onFulfilled?: ((value: T) => TResult1 | PromiseLike<TResult1>) | null,
    onRejected?: ((reason: unknown) => TResult2 | PromiseLike<TResult2>) | null,
  ): Promise<TResult1 | TResult2> {
    return this.#start()
      .then(({ data }) => data)
      .then(onFulfilled, onRejected);
  }

  catch<TResult = never>(
    onRejected?: ((reason: unknown) => TResult | PromiseLike<TResult>) | null,
  ): Promise<T | TResult> {
    return this.then(undefined, onRejected);
  }

  finally(onFinally?: (() => void) | null): Promise<T> {
    return this.then().finally(onFinally);
  }

  #start(): Promise<ParsedAnswer<T>> {
    this.#parsed ??= this.#source.parsed();
    return this.#parsed;
  }
}
