import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { TinkerError } from "../../../errors.js";
import type { Clock } from "../../../transport/clock.js";
import { HttpError } from "../http/http-error.js";
import type { Call, RequestOwner } from "../http/route.js";
import { MIN_KEY_LENGTH, WrongKeys } from "./wrong-keys.js";

const TOKEN_LIFETIME_S = 3600;
const LOCAL: RequestOwner = { owner: "local", seesAll: true };

/** Settings that identities are made from. */
export interface IdentitiesOptions {
  readonly apiKeys: readonly string[];
  /** Secret of the data folder; owner ids are derived with it, so that they reveal nothing about the keys. */
  readonly secret: Uint8Array;
  /** Whether keys may be exchanged for tokens. */
  readonly tokens: boolean;
  readonly clock: Clock;
}

/** The keys of this server, and the short-lived tokens it hands out for them. */
export class Identities {
  readonly #options: IdentitiesOptions;
  readonly #keys: readonly { readonly digest: Buffer; readonly identity: RequestOwner }[];
  readonly #wrongKeys: WrongKeys;
  /** Signs tokens: they end with the process at the latest. */
  readonly #tokenSecret = randomBytes(32);
  /** How often each owner has revoked their tokens; a token is of one such round. */
  readonly #rounds = new Map<string, number>();

  constructor(options: IdentitiesOptions) {
    this.#options = options;
    this.#wrongKeys = new WrongKeys(options.clock);
    this.#keys = options.apiKeys.map((key) => {
      checkKey(key);
      const digest = this.#digest(key);
      return { digest, identity: { owner: ownerId(digest), seesAll: false } };
    });
  }

  /** The one whom work of this process belongs to: the owner of the first key. */
  get first(): RequestOwner {
    return this.#keys[0]?.identity ?? LOCAL;
  }

  get keysRequired(): boolean {
    return this.#keys.length > 0;
  }

  /** Owner ids as earlier versions made them, each with the one that it has now. */
  formerOwners(): ReadonlyMap<string, string> {
    return new Map(
      this.#options.apiKeys.map((key, index) => {
        const former = createHash("sha256").update(key).digest();
        return [ownerId(former), this.#keys[index]!.identity.owner];
      }),
    );
  }

  ofCall(call: Call): RequestOwner | Promise<RequestOwner> {
    return this.#ofCredential(credentialOf(call), call);
  }

  /** The identity whose checkpoints may be read: the token's owner if a token is given. */
  reader(call: Call, token: string | undefined): RequestOwner | Promise<RequestOwner> {
    return token === undefined ? call.get("identity") : this.#ofCredential(token, call);
  }

  /** The identity behind a key or token; a 401 when it is missing or unknown. The right key never waits. */
  #ofCredential(credential: string | undefined, call: Call): RequestOwner | Promise<RequestOwner> {
    if (!this.keysRequired) return LOCAL;
    if (credential === undefined || credential === "") {
      throw new HttpError(401, "This server needs an API key: send it in the X-API-Key header.");
    }
    const identity = isToken(credential) ? this.#ofToken(credential) : this.#ofKey(credential);
    return identity ?? this.#refuse(call);
  }

  async #refuse(call: Call): Promise<never> {
    await this.#wrongKeys.slow(call.env?.address ?? "");
    throw new HttpError(401, "The API key is not one of this server's keys, or the token has ended.");
  }

  #ofKey(key: string): RequestOwner | undefined {
    const digest = this.#digest(key);
    let found: RequestOwner | undefined;
    // Digests of equal length, and no early exit: the time taken says nothing about the keys.
    for (const known of this.#keys) if (timingSafeEqual(known.digest, digest)) found = known.identity;
    return found;
  }

  /** A signed token (JWT, HS256) in place of the key, good for an hour. */
  exchange(call: Call): string {
    if (!this.#options.tokens) throw new HttpError(403, "This server issues no tokens: send the API key.");
    if (isToken(credentialOf(call) ?? ""))
      throw new HttpError(403, "A token cannot be exchanged for another: send the API key.");
    const { owner } = call.get("identity");
    const issuedAt = Math.floor(this.#options.clock.wallNow() / 1000);
    const payload = {
      iss: "tinkerts-local",
      sub: `tinkerts:user:${owner}`,
      org_id: "local",
      owner,
      round: this.#roundOf(owner),
      iat: issuedAt,
      exp: issuedAt + TOKEN_LIFETIME_S,
    };
    const body = `${encode({ alg: "HS256", typ: "JWT" })}.${encode(payload)}`;
    return `${body}.${this.#sign(body).toString("base64url")}`;
  }

  /** Ends all tokens that were issued to an owner. */
  revokeTokens({ owner }: RequestOwner): void {
    this.#rounds.set(owner, this.#roundOf(owner) + 1);
  }

  #roundOf(owner: string): number {
    return this.#rounds.get(owner) ?? 0;
  }

  #ofToken(token: string): RequestOwner | undefined {
    const [header, payload, signature, ...rest] = token.split(".");
    if (header === undefined || payload === undefined || signature === undefined || rest.length > 0)
      return undefined;
    const expected = this.#sign(`${header}.${payload}`);
    const given = Buffer.from(signature, "base64url");
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
    const { owner, round, exp } = JSON.parse(Buffer.from(payload, "base64url").toString("utf8")) as {
      owner: string;
      round: number;
      exp: number;
    };
    const isGood = exp * 1000 > this.#options.clock.wallNow() && round === this.#roundOf(owner);
    return isGood ? { owner, seesAll: false } : undefined;
  }

  #sign(text: string): Buffer {
    return createHmac("sha256", this.#tokenSecret).update(text).digest();
  }

  #digest(key: string): Buffer {
    return createHmac("sha256", this.#options.secret).update(key).digest();
  }
}

const MAKE_A_KEY = "make one with `echo tml-$(openssl rand -hex 24)`";

/** Throws for a key that no SDK would send, or that could be guessed; the message does not repeat it. */
function checkKey(key: string): void {
  if (!/^tml-\S+$/.test(key)) {
    throw new TinkerError(
      `Every API key must begin with 'tml-' and have no spaces, because the SDKs accept no others: ${MAKE_A_KEY}.`,
    );
  }
  if (key.length >= MIN_KEY_LENGTH) return;
  throw new TinkerError(
    `Every API key must have at least ${MIN_KEY_LENGTH} characters, got one of ${key.length}: ${MAKE_A_KEY}.`,
  );
}

function credentialOf(call: Call): string | undefined {
  const bearer = /^Bearer (.+)$/i.exec(call.req.header("authorization") ?? "")?.[1];
  return call.req.header("x-api-key") ?? bearer;
}

function isToken(credential: string): boolean {
  return credential.startsWith("eyJ");
}

function ownerId(digest: Buffer): string {
  return `key-${digest.toString("hex").slice(0, 16)}`;
}

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}
