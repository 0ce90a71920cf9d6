import { describe, expect, it } from "vitest";
import { RequestHeaders } from "./request-headers.js";

describe("RequestHeaders", () => {
  it("lays values over one another whatever their case; null removes, undefined leaves", () => {
    const base = new RequestHeaders().apply({ Accept: "application/json", "X-One": "1" });
    const headers = new RequestHeaders(base).apply({
      accept: "text/plain",
      "x-one": null,
      "X-Two": undefined,
    });
    expect([...headers]).toEqual([["accept", "text/plain"]]);
    expect([...base]).toEqual([
      ["accept", "application/json"],
      ["x-one", "1"],
    ]);
    expect(headers.get("ACCEPT")).toBe("text/plain");
    expect(headers.flat()).toEqual(["accept", "text/plain"]);
  });

  it.each([
    ["x y", "1"],
    ["", "1"],
    ["x-key", "tml-secret\r\nhost: elsewhere"],
    ["x-key", "tml-secret\0"],
    ["x-key", "tml-secret \u{1f511}"],
  ])("refuses %j: %j like the platform's Headers, and keeps the value out of the message", (name, value) => {
    expect(() => new Headers({ [name]: value })).toThrow();
    let message = "";
    try {
      new RequestHeaders().set(name, value);
    } catch (error) {
      message = String(error);
    }
    expect(message).toContain(`The header "${name}"`);
    expect(message).not.toContain("secret");
  });
});
