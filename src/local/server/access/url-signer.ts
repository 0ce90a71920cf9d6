import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { HttpError } from "../http/http-error.js";

const SIGNED_URL_LIFETIME_MS = 15 * 60_000;

/** Makes download links that need no key, name one thing, and end. */
export class UrlSigner {
  readonly #secret = randomBytes(32);
  readonly #wallNow: () => number;

  constructor(wallNow: () => number) {
    this.#wallNow = wallNow;
  }

  sign(
    origin: string,
    path: string,
    parameters: Readonly<Record<string, string>>,
  ): { url: string; expiresAt: number } {
    const expiresAt = Math.floor((this.#wallNow() + SIGNED_URL_LIFETIME_MS) / 1000) * 1000;
    const url = new URL(path, origin);
    for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
    url.searchParams.set("expires", String(expiresAt / 1000));
    url.searchParams.set("signature", this.#signature(url).toString("base64url"));
    return { url: url.href, expiresAt };
  }

  /** Throws a 403 unless the link was made by this server, for exactly this, and is still good. */
  check(url: URL): void {
    const given = Buffer.from(url.searchParams.get("signature") ?? "", "base64url");
    const unsigned = new URL(url);
    unsigned.searchParams.delete("signature");
    const expected = this.#signature(unsigned);
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
      throw new HttpError(403, "The signature of this download link is not valid.");
    }
    if (Number(url.searchParams.get("expires")) * 1000 <= this.#wallNow()) {
      throw new HttpError(403, "This download link has expired; ask for a new one.");
    }
  }

  #signature(url: URL): Buffer {
    return createHmac("sha256", this.#secret)
      .update(`${url.pathname}?${url.searchParams.toString()}`)
      .digest();
  }
}
