import type { Clock } from "../../transport/clock.js";
import type { JsonFields } from "../param-error.js";

/** Bounds on stored responses. */
export interface ResponseLimits {
  /** Most responses kept for one owner. */
  readonly storedResponses: number;
  /** Most bytes kept for all owners together. */
  readonly storedResponseBytes: number;
}

/** An item of the Responses API, with its id. */
export type ResponseItem = JsonFields & { readonly id: string };

/** A response with its output. */
export interface StoredResponse {
  readonly response: JsonFields & { readonly id: string };
  /** Items that the request added to the conversation. */
  readonly input: readonly ResponseItem[];
  readonly output: readonly ResponseItem[];
  /** Id of the previous response in the conversation. */
  readonly previousId: string | undefined;
}

interface Kept {
  readonly json: Uint8Array;
  readonly itemIds: readonly string[];
  expiresAt: number;
}

interface Owned {
  /** By id, in order of use: the most recently used is the last. */
  readonly responses: Map<string, Kept>;
  /** Id of the response that holds an item, by the item's id. */
  readonly items: Map<string, string>;
  bytes: number;
}

/** Unused responses are deleted after this time. */
const KEPT_MS = 24 * 3_600_000;

/**
 * Responses kept for `previous_response_id`, `item_reference` and `GET /responses/ID`. When an owner has too many, the
 * oldest is deleted; when all owners together store too many bytes, the owner who stores most loses the oldest.
 */
export class ResponseStore {
  readonly #clock: Pick<Clock, "now">;
  readonly #limits: ResponseLimits;
  readonly #owners = new Map<string, Owned>();
  #bytes = 0;

  constructor(clock: Pick<Clock, "now">, limits: ResponseLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  /** Bytes of everything that is stored. */
  get bytes(): number {
    return this.#bytes;
  }

  add(owner: string, stored: StoredResponse): void {
    this.#expire();
    const owned = this.#owners.get(owner) ?? { responses: new Map(), items: new Map(), bytes: 0 };
    this.#owners.set(owner, owned);
    const { id } = stored.response;
    const itemIds = [...stored.input, ...stored.output].map((item) => item.id);
    const json = new TextEncoder().encode(JSON.stringify(stored));
    owned.responses.set(id, { json, itemIds, expiresAt: this.#clock.now() + KEPT_MS });
    for (const itemId of itemIds) owned.items.set(itemId, id);
    owned.bytes += json.length;
    this.#bytes += json.length;
    if (owned.responses.size > this.#limits.storedResponses) this.#removeOldest(owner, owned);
    while (this.#bytes > this.#limits.storedResponseBytes) this.#removeOldest(...this.#largest());
  }

  get(owner: string, id: string): StoredResponse | undefined {
    const responses = this.#owners.get(owner)?.responses;
    const kept = responses?.get(id);
    const now = this.#clock.now();
    if (responses === undefined || kept === undefined || kept.expiresAt <= now) return undefined;
    kept.expiresAt = now + KEPT_MS;
    responses.delete(id);
    responses.set(id, kept);
    return JSON.parse(new TextDecoder().decode(kept.json)) as StoredResponse;
  }

  /** Bytes of a stored response; 0 for an unknown one. */
  bytesOf(owner: string, id: string): number {
    return this.#owners.get(owner)?.responses.get(id)?.json.length ?? 0;
  }

  item(owner: string, itemId: string): ResponseItem | undefined {
    const id = this.#owners.get(owner)?.items.get(itemId);
    const stored = id === undefined ? undefined : this.get(owner, id);
    return stored && [...stored.input, ...stored.output].find((item) => item.id === itemId);
  }

  /** Whether the response existed. */
  delete(owner: string, id: string): boolean {
    const owned = this.#owners.get(owner);
    return owned !== undefined && this.#remove(owner, owned, id);
  }

  #expire(): void {
    const now = this.#clock.now();
    for (const [owner, owned] of this.#owners)
      for (const [id, { expiresAt }] of owned.responses) {
        if (expiresAt > now) break;
        this.#remove(owner, owned, id);
      }
  }

  #largest(): [owner: string, owned: Owned] {
    return [...this.#owners].reduce((most, each) => (each[1].bytes > most[1].bytes ? each : most));
  }

  #removeOldest(owner: string, owned: Owned): void {
    const [oldest] = owned.responses.keys();
    if (oldest !== undefined) this.#remove(owner, owned, oldest);
  }

  #remove(owner: string, owned: Owned, id: string): boolean {
    const kept = owned.responses.get(id);
    if (kept === undefined) return false;
    owned.responses.delete(id);
    for (const itemId of kept.itemIds) if (owned.items.get(itemId) === id) owned.items.delete(itemId);
    owned.bytes -= kept.json.length;
    this.#bytes -= kept.json.length;
    if (owned.responses.size === 0) this.#owners.delete(owner);
    return true;
  }
}
