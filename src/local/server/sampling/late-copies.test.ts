import { describe, expect, it } from "vitest";
import { copyOf, LateCopies } from "./late-copies.js";

describe("LateCopies", () => {
  it("keeps the newest of each owner, whatever the others send", () => {
    const copies = new LateCopies();
    copies.remember("neighbour", "one", "first");
    for (let index = 0; index < 40_000; index += 1) copies.remember("owner", `copy ${index}`, `id ${index}`);
    expect(copies.find("owner", "copy 0")).toBeUndefined();
    expect(copies.find("owner", "copy 20000")).toBe("id 20000");
    expect(copies.find("neighbour", "one")).toBe("first");
    expect(copies.find("neighbour", "copy 20000")).toBeUndefined();
  });

  it("remembers nothing without an idempotency key", () => {
    const copies = new LateCopies();
    copies.remember("owner", copyOf("request", undefined), "id");
    expect(copies.find("owner", copyOf("request", undefined))).toBeUndefined();
    copies.remember("owner", copyOf("request", "key"), "id");
    expect(copies.find("owner", copyOf("request", "key"))).toBe("id");
    expect(copies.find("owner", copyOf("request", "another"))).toBeUndefined();
  });
});
