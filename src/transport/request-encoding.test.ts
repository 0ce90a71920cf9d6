import { describe, expect, it } from "vitest";
import { normalizeBaseURL } from "./request-encoding.js";

describe("a base URL", () => {
  it.each([
    ["https://host", "https://host"],
    [" https://host/ ", "https://host"],
    ["https://host:8000/proxy//", "https://host:8000/proxy"],
    ["http://localhost:8642/api/v1", "http://localhost:8642"],
    ["https://host/proxy/api/v1/", "https://host/proxy"],
    ["https://host/my-api/v1", "https://host/my-api/v1"],
    ["localhost:18931", "http://localhost:18931"],
    ["127.0.0.1:8642/api/v1", "http://127.0.0.1:8642"],
    ["[::1]:8642", "http://[::1]:8642"],
    ["localhost", "http://localhost"],
  ])("given as %j is %s", (given, expected) => expect(normalizeBaseURL(given)).toBe(expected));

  it.each([
    ["gpu-box:8000", 'such as "https://gpu-box:8000", got "gpu-box:8000"'],
    ["tinker.example.com/api/v1", 'such as "https://tinker.example.com", got "tinker.example.com/api/v1"'],
    ["localhost.evil.com:80", 'such as "https://localhost.evil.com:80"'],
    ["", 'such as "https://host", got ""'],
    ["no url", 'such as "https://host", got "no url"'],
    ["ftp://host", 'must begin with http:// or https://, got "ftp://"'],
    ["https://me:secret@host", "must not hold a user name or password"],
    ["https://host?x=1", "must not have a query"],
  ])("cannot be %j", (given, message) => expect(() => normalizeBaseURL(given)).toThrow(message));
});
