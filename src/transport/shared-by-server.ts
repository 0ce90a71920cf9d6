interface Shared<T> {
  readonly value: T;
  users: number;
}

/** One value for all clients of the process with the same base URL and credential, for as long as any of them is open. */
export class SharedByServer<T> {
  readonly #byCredential = new Map<unknown, Map<string, Shared<T>>>();

  /** The value, made by the first who asks; `release` must be called once by everyone who did. */
  acquire(baseURL: string, credential: unknown, make: () => T): { value: T; release: () => void } {
    const byUrl = this.#byCredential.get(credential) ?? new Map<string, Shared<T>>();
    this.#byCredential.set(credential, byUrl);
    const shared = byUrl.get(baseURL) ?? { value: make(), users: 0 };
    byUrl.set(baseURL, shared);
    shared.users += 1;
    const release = () => {
      shared.users -= 1;
      if (shared.users > 0) return;
      byUrl.delete(baseURL);
      if (byUrl.size === 0) this.#byCredential.delete(credential);
    };
    return { value: shared.value, release };
  }
}
