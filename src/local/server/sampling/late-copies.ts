/** For each owner, the newest: more than a network holds back at one time. */
const MAX_REMEMBERED = 32_768;

/**
 * Requests whose results may be gone. A network can deliver a copy of a request when the result has long been fetched
 * and dropped; it must not be executed again. A client that has lost the result asks again under the same number, and
 * gets a new one. Its request differs from a copy: it has a new idempotency key, and the client has not said that it
 * has the result.
 */
export class LateCopies {
  readonly #ofOwners = new Map<string, Map<string, string>>();

  /** The request id that the first copy was answered with. */
  find(owner: string, copy: string | undefined): string | undefined {
    return copy === undefined ? undefined : this.#ofOwners.get(owner)?.get(copy);
  }

  remember(owner: string, copy: string | undefined, requestId: string): void {
    if (copy === undefined) return;
    const copies = this.#ofOwners.get(owner) ?? new Map<string, string>();
    this.#ofOwners.set(owner, copies.set(copy, requestId));
    if (copies.size > MAX_REMEMBERED) copies.delete(copies.keys().next().value!);
  }
}

/** Equal for all copies of what a client sent as one; undefined where no idempotency key tells. */
export function copyOf(request: string, idempotencyKey: string | undefined): string | undefined {
  return idempotencyKey === undefined ? undefined : `${request} ${idempotencyKey}`;
}
