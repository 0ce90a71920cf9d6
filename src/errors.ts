/** Every error a caller of tinkerts can meet, and the redaction that keeps secrets out of all of them. */

const SECRET_TEXT: ReadonlyArray<readonly [pattern: RegExp, replacement: string]> = [
  [/(?<![A-Za-z0-9])tml-[A-Za-z0-9_-]+/g, "tml-[redacted]"],
  [/(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){0,2}/g, "eyJ[redacted]"],
  [/(\/\/)[^/\s:@"']+:[^/\s@"']+@/g, "$1[redacted]@"],
  [/([?&][\w-]*(?:signature|token|secret|password|api_?key|credential)[\w-]*=)[^&\s"']+/gi, "$1[redacted]"],
];

const SECRET_NAME =
  /^(?:authorization|proxy-authorization|cookie|set-cookie|cf-access-.*|.*(?:token|secret|password|api[-_]?key|credential))$/i;

const SHORTEST_SECRET = 8;
const MAX_SECRETS = 32;

/** Credentials in use that look like anything: keys of self-hosted servers, headers of proxies. */
const knownSecrets = new Set<string>();

/** From now on this credential is replaced in every text: some servers quote it in their answers. */
export function rememberSecret(value: string): void {
  // Short ones would be found in the middle of innocent words.
  if (value.length < SHORTEST_SECRET || knownSecrets.has(value) || /^(?:tml-|eyJ)/.test(value)) return;
  const [oldest] = knownSecrets;
  if (knownSecrets.size >= MAX_SECRETS && oldest !== undefined) knownSecrets.delete(oldest);
  knownSecrets.add(value);
}

/** Replaces everything in a text that is a credential in use, or looks like a key, a JWT, a URL password or a signed URL's token. */
export function redactText(text: string): string {
  let redacted = text;
  for (const [pattern, replacement] of SECRET_TEXT) redacted = redacted.replace(pattern, replacement);
  for (const secret of knownSecrets) redacted = redacted.replaceAll(secret, "[redacted]");
  return redacted;
}

/** True when a header of this name carries a credential, so that its value must never be shown. */
export function isSecretHeader(name: string): boolean {
  return SECRET_NAME.test(name);
}

/** Redacts every string of a JSON-like value; containers are copied, never changed in place. */
export function redactValue(value: unknown, depth = 0): unknown {
  if (typeof value === "string") return redactText(value);
  if (typeof value !== "object" || value === null || depth > 8 || ArrayBuffer.isView(value)) return value;
  if (Array.isArray(value)) return value.map((item) => redactValue(item, depth + 1));
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      key,
      isSecretHeader(key) && typeof item === "string" ? "[redacted]" : redactValue(item, depth + 1),
    ]),
  );
}

/** A copy of the headers in which secrets are replaced, fit for logs and errors. */
export function redactHeaders(headers: Headers): Headers {
  const redacted = new Headers();
  headers.forEach((value, name) => {
    redacted.set(name, isSecretHeader(name) ? "[redacted]" : redactText(value));
  });
  return redacted;
}

const MAX_MESSAGE_LENGTH = 16_384;

/** A message of a length that a person may read: some quote what came, and that may be megabytes. */
export function shortened(message: string): string {
  if (message.length <= MAX_MESSAGE_LENGTH) return message;
  return `${message.slice(0, MAX_MESSAGE_LENGTH)}… (${message.length} characters)`;
}

type ErrorClass = { readonly prototype: object; readonly name: string };

const MARKER = Symbol.for("tinkerts.error.marker");

/** Gives a class its `Symbol.for` marker and its name, which minifiers would otherwise change. */
function mark(errorClass: ErrorClass, name: string): void {
  const marker = Symbol.for(`tinkerts.error.${name}`);
  Object.defineProperty(errorClass, MARKER, { value: marker });
  Object.defineProperty(errorClass.prototype, marker, { value: true });
  Object.defineProperty(errorClass.prototype, "name", { value: name, writable: true, configurable: true });
}

/** Base of every error tinkerts throws on purpose. */
export class TinkerError extends Error {
  static {
    mark(TinkerError, "TinkerError");
  }

  constructor(message: string, options?: { cause?: unknown }) {
    super(redactText(shortened(message)), options);
  }

  /** Asks for the marker, so that `instanceof` also holds between two installed copies of the package. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: `this` is the class the question is about.
    return isInstance(this, value);
  }
}

function isInstance(errorClass: ErrorClass, value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  // A caller's own subclass has no marker of its own.
  if (!Object.hasOwn(errorClass, MARKER))
    return Object.prototype.isPrototypeOf.call(errorClass.prototype, value);
  return Reflect.get(value, Reflect.get(errorClass, MARKER) as symbol) === true;
}

/** The request an error is about. */
export interface RequestDescription {
  readonly method: string;
  readonly path: string;
}

/** The parts of an answer with an error status. */
export interface APIErrorDetails {
  readonly status: number;
  readonly headers: Headers;
  readonly body: unknown;
  readonly message: string;
}

/** The server answered with a status that is not a success. */
export class APIError extends TinkerError {
  static {
    mark(APIError, "APIError");
  }
  readonly status: number;
  /** Response headers, secrets replaced. */
  readonly headers: Headers;
  /** Response body: parsed JSON where it was JSON, else text, else undefined; secrets replaced. */
  readonly body: unknown;
  /** The server's own id of this exchange, when it sent one; quote it in bug reports. */
  readonly httpRequestId: string | undefined;

  constructor(details: APIErrorDetails) {
    super(details.message);
    this.status = details.status;
    this.headers = redactHeaders(details.headers);
    this.body = redactValue(details.body);
    this.httpRequestId =
      details.headers.get("x-request-id") ?? details.headers.get("request-id") ?? undefined;
  }

  /** The error class that belongs to a status, with a message that names the request, what the server said, and the remedy. */
  static from(
    status: number,
    headers: Headers,
    body: unknown,
    request: RequestDescription,
    inOtherWords: (said: string) => string = (said) => said,
  ): APIError {
    const known = ERROR_BY_STATUS.get(status);
    const kind = known ?? (status >= 500 ? INTERNAL : { errorClass: APIError, remedy: "" });
    const said = inOtherWords(detailOf(body));
    const message = [
      `${request.method} ${request.path} answered ${status}${said === "" ? "" : `: ${said}`}`,
      kind.remedy,
    ]
      .filter((part) => part !== "")
      .map((part) => part.replace(/[.\s]+$/, ""))
      .join(". ");
    return new kind.errorClass({ status, headers, body, message: `${message}.` });
  }
}

/** 400: the server rejects the request. */
export class BadRequestError extends APIError {
  static {
    mark(BadRequestError, "BadRequestError");
  }
}
/** 401: the credential is missing, wrong or expired. */
export class AuthenticationError extends APIError {
  static {
    mark(AuthenticationError, "AuthenticationError");
  }
}
/** 402: the account cannot pay for this. */
export class PaymentRequiredError extends APIError {
  static {
    mark(PaymentRequiredError, "PaymentRequiredError");
  }
}
/** 403: the credential is valid but may not do this. */
export class PermissionDeniedError extends APIError {
  static {
    mark(PermissionDeniedError, "PermissionDeniedError");
  }
}
/** 404: not found on the server, or not visible to this credential. */
export class NotFoundError extends APIError {
  static {
    mark(NotFoundError, "NotFoundError");
  }
}
/** 408: the server gave up waiting for the request. */
export class RequestTimeoutError extends APIError {
  static {
    mark(RequestTimeoutError, "RequestTimeoutError");
  }
}
/** 409: the request does not fit the present state of the server. */
export class ConflictError extends APIError {
  static {
    mark(ConflictError, "ConflictError");
  }
}
/** 410: the resource is gone, such as the result of an old request. */
export class GoneError extends APIError {
  static {
    mark(GoneError, "GoneError");
  }
}
/** 422: the server read the request and refuses what it says. */
export class UnprocessableEntityError extends APIError {
  static {
    mark(UnprocessableEntityError, "UnprocessableEntityError");
  }
}
/** 429: too many requests; the client has already tried again. */
export class RateLimitError extends APIError {
  static {
    mark(RateLimitError, "RateLimitError");
  }
}
/** Any status of 500 or above. */
export class InternalServerError extends APIError {
  static {
    mark(InternalServerError, "InternalServerError");
  }
}

interface StatusKind {
  readonly errorClass: new (details: APIErrorDetails) => APIError;
  readonly remedy: string;
}

const ERROR_BY_STATUS: ReadonlyMap<number, StatusKind> = new Map<number, StatusKind>([
  [400, { errorClass: BadRequestError, remedy: "" }],
  [401, { errorClass: AuthenticationError, remedy: "Check the apiKey option or TINKER_API_KEY" }],
  [402, { errorClass: PaymentRequiredError, remedy: "Check the billing status of the account" }],
  [403, { errorClass: PermissionDeniedError, remedy: "The credential is valid but may not do this" }],
  [404, { errorClass: NotFoundError, remedy: "" }],
  [408, { errorClass: RequestTimeoutError, remedy: "The server gave up waiting; try again" }],
  [409, { errorClass: ConflictError, remedy: "" }],
  [410, { errorClass: GoneError, remedy: "" }],
  [422, { errorClass: UnprocessableEntityError, remedy: "" }],
  [429, { errorClass: RateLimitError, remedy: "Send fewer requests at once, or try again later" }],
]);

const INTERNAL: StatusKind = {
  errorClass: InternalServerError,
  remedy: "The server failed; try again later",
};

const MAX_DETAIL_CHARACTERS = 500;

/** The sentence a server put into an error body, in the shapes that Tinker servers use. */
function detailOf(body: unknown): string {
  if (body === undefined || body === null || body === "") return "";
  let detail: unknown = body;
  for (let depth = 0; depth < 3 && typeof detail === "object" && detail !== null; depth += 1) {
    const holder = detail as Record<string, unknown>;
    const inner = holder["detail"] ?? holder["message"] ?? holder["error"];
    if (inner === undefined || inner === null) break;
    detail = inner;
  }
  const said = typeof detail === "string" ? detail : (complaints(detail) ?? JSON.stringify(detail) ?? "");
  const text = said.trim();
  return text.length > MAX_DETAIL_CHARACTERS ? `${text.slice(0, MAX_DETAIL_CHARACTERS)}…` : text;
}

/** FastAPI's list of what is wrong with a request, as a sentence; undefined when it is something else. */
function complaints(detail: unknown): string | undefined {
  if (!Array.isArray(detail) || detail.length === 0) return undefined;
  const parts = detail.map((item: { loc?: unknown; msg?: unknown } | null) => {
    if (typeof item?.msg !== "string") return undefined;
    const place = Array.isArray(item.loc) ? item.loc.map(String) : [];
    // Some servers name the field in the message, too.
    if (place.length === 0 || item.msg.includes(place.at(-1)!)) return item.msg;
    return `${place.slice(place.length > 1 ? 1 : 0).join(".")}: ${item.msg}`;
  });
  return parts.includes(undefined) ? undefined : parts.join("; ");
}

/** No answer came: the connection could not be made, or broke. `cause` holds what the network said. */
export class APIConnectionError extends TinkerError {
  static {
    mark(APIConnectionError, "APIConnectionError");
  }
}

/** No answer came within the timeout. */
export class APITimeoutError extends APIConnectionError {
  static {
    mark(APITimeoutError, "APITimeoutError");
  }
}

/** The server's answer was longer than any answer of its kind: the rest was not read. */
export class AnswerTooLargeError extends TinkerError {
  static {
    mark(AnswerTooLargeError, "AnswerTooLargeError");
  }
  /** Most bytes that are read of such an answer, decompressed. */
  readonly limitBytes: number;

  constructor(what: string, limitBytes: number) {
    super(
      `${what} was answered with more than ${limitBytes} bytes, the limit for such an answer. Is this a Tinker server?`,
    );
    this.limitBytes = limitBytes;
  }
}

/** The caller's own signal ended the call; `cause` is the signal's reason. */
export class APIUserAbortError extends TinkerError {
  static {
    mark(APIUserAbortError, "APIUserAbortError");
  }
}

/** The cause of a failed request: the caller ("user"), the server, or unknown. */
export type RequestErrorCategory = "unknown" | "server" | "user";

/** The server accepted a request, worked on it, and reports that it failed. */
export class RequestFailedError extends TinkerError {
  static {
    mark(RequestFailedError, "RequestFailedError");
  }
  readonly requestId: string;
  readonly category: RequestErrorCategory;

  constructor(
    message: string,
    details: { requestId: string; category: RequestErrorCategory; cause?: unknown },
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.requestId = details.requestId;
    this.category = details.category;
  }
}

/** An argument was wrong; nothing was sent. `field` says which one. */
export class ValidationError extends TinkerError {
  static {
    mark(ValidationError, "ValidationError");
  }
  readonly field: string;

  constructor(field: string, message: string) {
    super(message);
    this.field = shortened(field);
  }
}

/** The message of an error, or the text of any other thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * True when the caller, not the service, has to change something: a 4xx but 408, a failure of category
 * "user", bad input; also when such an error is the cause of this one.
 */
export function isUserError(error: unknown): boolean {
  const seen = new Set<unknown>();
  for (let current = error; current instanceof Error && !seen.has(current); current = current.cause) {
    seen.add(current);
    if (current instanceof ValidationError) return true;
    if (current instanceof RequestFailedError && current.category === "user") return true;
    if (
      current instanceof APIError &&
      current.status >= 400 &&
      current.status < 500 &&
      current.status !== 408
    ) {
      return true;
    }
  }
  return false;
}
