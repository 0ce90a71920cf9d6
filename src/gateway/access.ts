import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { TinkerError } from "../errors.js";
import { HttpError } from "../http-error.js";
import { MIN_KEY_LENGTH, WrongKeys } from "../local/server/access/wrong-keys.js";
import type { Clock } from "../transport/clock.js";

const SESSION_KEY = /^tml-s\.(.+)\.([\w-]{20,})$/;

/** Sender of a request: identified by a key of the gateway, by a session's key, or unknown if there are no keys. */
export interface Caller {
  /** The session whose key was sent. */
  readonly session?: string | undefined;
  /** True for a key of the gateway itself, which may use all sessions. */
  readonly isOwner: boolean;
}

/** The keys of a gateway and of its sessions. A session's key names it and is signed, so it is not stored. */
export class GatewayKeys {
  readonly #secret: Uint8Array;
  readonly #keys: readonly Buffer[];
  readonly #wrong: WrongKeys;

  constructor(apiKeys: readonly string[], secret: Uint8Array = randomBytes(32), clock: Clock) {
    if (apiKeys.some((key) => key.length < MIN_KEY_LENGTH || /\s/.test(key)))
      throw new TinkerError(`Every API key must have at least ${MIN_KEY_LENGTH} characters and no spaces.`);
    this.#secret = secret;
    this.#keys = apiKeys.map((key) => this.#digest(key));
    this.#wrong = new WrongKeys(clock);
  }

  get keysRequired(): boolean {
    return this.#keys.length > 0;
  }

  sessionKey(id: string): string {
    return `tml-s.${id}.${this.#sign(id)}`;
  }

  /** The sender of a request. A gateway without keys ignores credentials that are not a session's. */
  async callerOf(headers: Headers, address: string): Promise<Caller> {
    const bearer = /^Bearer (.+)$/i.exec(headers.get("authorization") ?? "")?.[1];
    const credentials = [headers.get("x-api-key"), bearer].filter(
      (each) => each !== null && each !== undefined,
    );
    for (const credential of credentials) {
      const session = this.#sessionOf(credential);
      if (session !== undefined) return { session, isOwner: false };
    }
    if (!this.keysRequired) return { isOwner: true };
    if (credentials.length === 0)
      throw new HttpError(401, "This gateway needs an API key: one of its own, or that of a session.");
    const digests = credentials.map((credential) => this.#digest(credential));
    if (this.#keys.some((key) => digests.some((digest) => timingSafeEqual(key, digest))))
      return { isOwner: true };
    await this.#wrong.slow(address);
    throw new HttpError(401, "The API key is not one of this gateway's keys, nor of one of its sessions.");
  }

  #sessionOf(credential: string): string | undefined {
    const [, id, signature] = SESSION_KEY.exec(credential) ?? [];
    if (id === undefined || signature === undefined) return undefined;
    // Compared as text, because base64 has several texts for the same bytes.
    const [expected, given] = [Buffer.from(this.#sign(id)), Buffer.from(signature)];
    return given.length === expected.length && timingSafeEqual(given, expected) ? id : undefined;
  }

  #sign(id: string): string {
    return createHmac("sha256", this.#secret)
      .update(`session ${id}`)
      .digest()
      .subarray(0, 18)
      .toString("base64url");
  }

  #digest(key: string): Buffer {
    return createHmac("sha256", this.#secret).update(key).digest();
  }
}
