import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { HttpError } from "../http/http-error.js";
import type { Identity } from "../http/route.js";

const TOKEN_LIFETIME_S = 3600;
const LOCAL: Identity = { owner: "local", seesAll: true };

/** The keys of this server, and the short-lived tokens it hands out for them. */
export class Identities {
  readonly #keys: readonly { readonly digest: Buffer; readonly identity: Identity }[];
  readonly #secret = randomBytes(32);
  readonly #wallNow: () => number;

  constructor(apiKeys: readonly string[], wallNow: () => number) {
    this.#wallNow = wallNow;
    this.#keys = apiKeys.map((key) => {
      if (!/^tml-\S+$/.test(key)) {
        throw new Error(
          "Every API key must begin with 'tml-' and have no spaces: that is what the SDKs accept.",
        );
      }
      const digest = sha256(key);
      return { digest, identity: { owner: `key-${digest.toString("hex").slice(0, 16)}`, seesAll: false } };
    });
  }

  get keysRequired(): boolean {
    return this.#keys.length > 0;
  }

  ofRequest(request: Request): Identity {
    const bearer = /^Bearer (.+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
    return this.ofCredential(request.headers.get("x-api-key") ?? bearer);
  }

  /** The identity behind a key or token; a 401 when it is missing or unknown. */
  ofCredential(credential: string | undefined): Identity {
    if (!this.keysRequired) return LOCAL;
    if (credential === undefined || credential === "") {
      throw new HttpError(401, "This server needs an API key: send it in the X-API-Key header.");
    }
    const identity = credential.startsWith("eyJ") ? this.#ofToken(credential) : this.#ofKey(credential);
    if (identity === undefined)
      throw new HttpError(401, "The API key is not one of this server's keys, or the token has expired.");
    return identity;
  }

  /** Whose checkpoints may be read: those of the token's owner where one is given. */
  reader(identity: Identity, token: string | undefined): Identity {
    return token === undefined ? identity : this.ofCredential(token);
  }

  #ofKey(key: string): Identity | undefined {
    const digest = sha256(key);
    let found: Identity | undefined;
    // Digests of equal length, and no early exit: the time taken says nothing about the keys.
    for (const known of this.#keys) if (timingSafeEqual(known.digest, digest)) found = known.identity;
    return found;
  }

  /** A signed token (JWT, HS256) in place of the key, good for an hour. */
  issueToken(identity: Identity): string {
    const issuedAt = Math.floor(this.#wallNow() / 1000);
    const payload = {
      iss: "tinkerts-local",
      sub: `tinkerts:user:${identity.owner}`,
      org_id: "local",
      owner: identity.owner,
      iat: issuedAt,
      exp: issuedAt + TOKEN_LIFETIME_S,
    };
    const body = `${encode({ alg: "HS256", typ: "JWT" })}.${encode(payload)}`;
    return `${body}.${this.#sign(body).toString("base64url")}`;
  }

  #ofToken(token: string): Identity | undefined {
    const [header, payload, signature, ...rest] = token.split(".");
    if (header === undefined || payload === undefined || signature === undefined || rest.length > 0)
      return undefined;
    const expected = this.#sign(`${header}.${payload}`);
    const given = Buffer.from(signature, "base64url");
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
    const claims = JSON.parse(Buffer.from(payload, "base64url").toString("utf8")) as {
      owner: string;
      exp: number;
    };
    return claims.exp * 1000 > this.#wallNow() ? { owner: claims.owner, seesAll: false } : undefined;
  }

  #sign(text: string): Buffer {
    return createHmac("sha256", this.#secret).update(text).digest();
  }
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}
