import { isSecretHeader, messageOf, rememberSecret } from "../../errors.js";
import { HttpError } from "../../http-error.js";
import { randomUuid } from "../../transport/ids.js";
import { platformSignalOf } from "../../transport/interruption.js";
import { SESSION_HEADER } from "../address.js";

/** Headers of one connection, and those that this gateway sets or reads itself. */
const NOT_PASSED = new Set([
  ...["connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-connection"],
  ...["host", "content-length", "content-encoding", "accept-encoding", "expect", "cookie", "set-cookie"],
  ...["origin", "referer", SESSION_HEADER],
]);
const PASSED_BY = "x-tinkerts-passed-by";

/** A service that requests are passed to. */
export class UpstreamService {
  readonly #base: string;
  readonly #apiKey: string | undefined;
  /** Marks requests, to detect one that comes back to this gateway. */
  readonly #name = randomUuid();

  constructor(address: string, apiKey: string | undefined) {
    this.#base = readUpstream(address)!;
    this.#apiKey = apiKey;
    if (apiKey !== undefined) rememberSecret(apiKey);
  }

  /** Sends a request on. `hasOwnKey` says whether its credentials are meant for the service. */
  async send(request: Request, { path, body, hasOwnKey, signal }: PassedCall): Promise<Response> {
    if (request.headers.get(PASSED_BY) === this.#name)
      throw new HttpError(508, "The upstream service of this gateway leads back to the gateway itself.");
    if (!hasOwnKey && this.#apiKey === undefined)
      throw new HttpError(
        401,
        "The key of a session is not passed on, and this gateway has no upstreamApiKey: name the session by its address, and send the key of the upstream service.",
      );
    const headers = new Headers();
    const passesKeys = hasOwnKey && this.#apiKey === undefined;
    for (const [name, value] of request.headers)
      if (!NOT_PASSED.has(name) && (passesKeys || !isSecretHeader(name))) headers.set(name, value);
    headers.set(PASSED_BY, this.#name);
    if (this.#apiKey !== undefined) {
      headers.set("authorization", `Bearer ${this.#apiKey}`);
      if (path.startsWith("/anthropic/")) headers.set("x-api-key", this.#apiKey);
    }
    const { search } = new URL(request.url);
    const url = `${this.#base}${path.replace(/^\/(anthropic|oai\/api)(?=\/)/, "")}${search}`;
    try {
      return await fetch(url, {
        ...{ method: request.method, headers, redirect: "manual", signal: platformSignalOf(signal) },
        ...(body !== undefined && { body }),
      });
    } catch (error) {
      if (signal.aborted) throw error;
      const why = error instanceof Error && error.cause !== undefined ? error.cause : error;
      throw new HttpError(502, `The upstream service could not be reached: ${messageOf(why)}`);
    }
  }
}

/** A request on its way to the service. */
export interface PassedCall {
  /** Path of the API, without the session. */
  readonly path: string;
  readonly body: string | undefined;
  readonly hasOwnKey: boolean;
  readonly signal: AbortSignal;
}

/** The service's headers, as the agent gets them. */
export function passedHeaders(answer: Response): Headers {
  const headers = new Headers();
  for (const [name, value] of answer.headers)
    if (!NOT_PASSED.has(name) && !name.startsWith("access-control-")) headers.set(name, value);
  return headers;
}

/** The address of a service without its API version; undefined for other addresses. */
export function readUpstream(address: string): string | undefined {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) return undefined;
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") return undefined;
  return `${url.origin}${url.pathname.replace(/\/+$/, "").replace(/\/v1$/, "")}`;
}
