const FOR_EVER_MS = 2 ** 31 - 1;

/** Keeps the process alive while work is under way, and only then: an awaited promise alone does not. */
export class WorkUnderWay {
  #count = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  /** Work begins; the returned function ends it. */
  begin(): () => void {
    this.#count += 1;
    this.#timer ??= setInterval(() => {}, FOR_EVER_MS);
    return () => {
      this.#count -= 1;
      if (this.#count > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  async during<T>(work: () => Promise<T>): Promise<T> {
    const end = this.begin();
    try {
      return await work();
    } finally {
      end();
    }
  }
}
