import { describe, expect, it } from "vitest";
import {
  APIConnectionError,
  APIError,
  APITimeoutError,
  APIUserAbortError,
  AuthenticationError,
  BadRequestError,
  ConflictError,
  GoneError,
  InternalServerError,
  isSecretHeader,
  isUserError,
  NotFoundError,
  PaymentRequiredError,
  PermissionDeniedError,
  RateLimitError,
  RequestFailedError,
  RequestTimeoutError,
  redactText,
  redactValue,
  TinkerError,
  UnprocessableEntityError,
  ValidationError,
} from "./errors.js";

const request = { method: "POST", path: "/api/v1/asample" };
const from = (status: number, body?: unknown, headers: Record<string, string> = {}) =>
  APIError.from(status, new Headers(headers), body, request);

describe("APIError.from", () => {
  it.each([
    [400, BadRequestError],
    [401, AuthenticationError],
    [402, PaymentRequiredError],
    [403, PermissionDeniedError],
    [404, NotFoundError],
    [408, RequestTimeoutError],
    [409, ConflictError],
    [410, GoneError],
    [422, UnprocessableEntityError],
    [429, RateLimitError],
    [500, InternalServerError],
    [503, InternalServerError],
  ])("makes the class of status %i", (status, errorClass) => {
    const error = from(status);
    expect(error).toBeInstanceOf(errorClass);
    expect(error.name).toBe(errorClass.name);
    expect(error.status).toBe(status);
    const siblings = [BadRequestError, AuthenticationError, GoneError, InternalServerError].filter(
      (other) => other !== errorClass,
    );
    for (const sibling of siblings) expect(error).not.toBeInstanceOf(sibling);
  });

  it("makes a plain APIError of a status without a class", () => {
    expect(from(418).name).toBe("APIError");
  });

  it("names the request, what the server said and what to do", () => {
    expect(from(401, { detail: "Bad key." }).message).toBe(
      "POST /api/v1/asample answered 401: Bad key. Check the apiKey option or TINKER_API_KEY.",
    );
    expect(from(404).message).toBe("POST /api/v1/asample answered 404.");
  });

  it.each([
    [{ detail: "a" }, "a"],
    [{ error: "b", category: "user" }, "b"],
    [{ error: { message: "c" } }, "c"],
    ["plain text", "plain text"],
    [{ detail: [{ loc: ["body"], msg: "missing" }] }, "body: missing"],
    [
      {
        detail: [
          { loc: ["body", "a", "b"], msg: "Field required" },
          { loc: ["body", "c"], msg: "c is no number" },
        ],
      },
      "a.b: Field required; c is no number",
    ],
    [{ detail: [{ loc: ["body"] }] }, '[{"loc":["body"]}]'],
    [{ other: 1 }, '{"other":1}'],
  ])("finds the sentence in %j", (body, sentence) => {
    expect(from(400, body).message).toContain(`answered 400: ${sentence}`);
  });

  it("carries request id, body and headers", () => {
    const error = from(500, { detail: "x" }, { "x-request-id": "r-1", "retry-after": "3" });
    expect(error.httpRequestId).toBe("r-1");
    expect(error.body).toEqual({ detail: "x" });
    expect(error.headers.get("retry-after")).toBe("3");
  });
});

describe("redaction", () => {
  const key = "tml-AbC_123-xyz";
  const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";

  it.each([
    [`key ${key} is bad`, "key tml-[redacted] is bad"],
    [`Bearer ${jwt}!`, "Bearer eyJ[redacted]!"],
    ["https://user:pw@proxy:80/x", "https://[redacted]@proxy:80/x"],
    ["https://s/x?X-Goog-Signature=abc&a=1", "https://s/x?X-Goog-Signature=[redacted]&a=1"],
    ["html-page and tml", "html-page and tml"],
  ])("turns %j into %j", (text, expected) => {
    expect(redactText(text)).toBe(expected);
  });

  it("knows the headers that carry credentials", () => {
    for (const name of [
      "X-API-Key",
      "authorization",
      "CF-Access-Client-Id",
      "cf-access-client-secret",
      "cookie",
      "set-cookie",
      "X-Tinker-Weights-Access-Token",
    ]) {
      expect(isSecretHeader(name), name).toBe(true);
    }
    for (const name of ["content-type", "x-request-id", "x-stainless-os"]) {
      expect(isSecretHeader(name), name).toBe(false);
    }
  });

  it("goes into nested values and leaves the original alone", () => {
    const value = { list: [key], nested: { access_token: "opaque", max_tokens: 5 } };
    expect(redactValue(value)).toEqual({
      list: ["tml-[redacted]"],
      nested: { access_token: "[redacted]", max_tokens: 5 },
    });
    expect(value.list[0]).toBe(key);
  });

  it("applies to message, body and headers of every error", () => {
    const error = from(
      400,
      { detail: `no ${key}`, api_key: "opaque" },
      { "set-cookie": "s=1", "x-note": jwt },
    );
    const shown = JSON.stringify([error.message, error.body, [...error.headers]]);
    for (const secret of [key, "opaque", "s=1", jwt]) expect(shown).not.toContain(secret);
    expect(new APIConnectionError(`with ${key}`).message).toBe("with tml-[redacted]");
  });
});

describe("instanceof", () => {
  it("follows the class tree", () => {
    const timeout = new APITimeoutError("t", { cause: 1 });
    expect(timeout).toBeInstanceOf(APIConnectionError);
    expect(timeout).toBeInstanceOf(TinkerError);
    expect(timeout).toBeInstanceOf(Error);
    expect(timeout.cause).toBe(1);
    expect(timeout).not.toBeInstanceOf(APIError);
    expect(new APIUserAbortError("a")).not.toBeInstanceOf(APIConnectionError);
    expect(new Error("x")).not.toBeInstanceOf(TinkerError);
  });

  it("holds between two copies of the package", async () => {
    // @ts-expect-error the query makes it a second copy, which the type checker does not know
    const copy = (await import("./errors.js?copy")) as typeof import("./errors.js");
    expect(copy.APITimeoutError).not.toBe(APITimeoutError);
    const foreign = new copy.APITimeoutError("t");
    expect(foreign).toBeInstanceOf(APITimeoutError);
    expect(foreign).toBeInstanceOf(APIConnectionError);
    expect(foreign).not.toBeInstanceOf(APIError);
  });

  it("does not take every TinkerError for a caller's own subclass", () => {
    class MyError extends TinkerError {}
    expect(new MyError("m")).toBeInstanceOf(MyError);
    expect(new MyError("m")).toBeInstanceOf(TinkerError);
    expect(new TinkerError("m")).not.toBeInstanceOf(MyError);
  });
});

describe("isUserError", () => {
  const failed = (category: "user" | "server" | "unknown") =>
    new RequestFailedError("f", { requestId: "1", category });

  it.each([
    [from(400), true],
    [from(429), true],
    [from(408), false],
    [from(500), false],
    [failed("user"), true],
    [failed("server"), false],
    [failed("unknown"), false],
    [new ValidationError("data[0]", "v"), true],
    [new APIConnectionError("c"), false],
    [new TinkerError("wrapped", { cause: from(404) }), true],
    ["text", false],
  ])("of %s is %s", (error, expected) => {
    expect(isUserError(error)).toBe(expected);
  });
});
