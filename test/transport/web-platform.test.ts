import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it, vi } from "vitest";
import { platform as webPlatform } from "../../src/transport/platform.js";
import { clientForTest, REQUEST, ROUTE, serverForTest } from "./helpers.js";

vi.mock("#platform", async () => import("../../src/transport/platform.js"));

describe("outside Node", () => {
  it("the client runs over the runtime's own fetch", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 503 }, { json: { ok: true } }]);
    server.on("GET /api/v1/old", { status: 302, headers: { location: "/api/v1/new" } });
    server.on("GET /api/v1/new", { json: { moved: true } });
    const fetch = vi.spyOn(globalThis, "fetch");
    const client = clientForTest(server);
    expect((await client.exchange(REQUEST)).json()).toEqual({ ok: true });
    expect(await client.get("/api/v1/old")).toEqual({ moved: true });
    expect(fetch).toHaveBeenCalledTimes(4);
    expect(server.requests[0]?.headers).toMatchObject({ "x-api-key": "tml-test", "x-stainless-lang": "js" });
    expect(webPlatform.runCommand).toBeUndefined();
    expect(webPlatform.readStoredCredential).toBeUndefined();
    await client.close();
  });

  it("follows where the browser hides the redirect", async () => {
    const modes: unknown[] = [];
    const fetch = async (_input: unknown, init?: RequestInit) => {
      modes.push(init?.redirect);
      const response = Response.json({ ok: true });
      if (init?.redirect === "manual") Object.defineProperty(response, "type", { value: "opaqueredirect" });
      return response;
    };
    const client = clientForTest({ url: "http://nowhere" }, { fetch: fetch as typeof globalThis.fetch });
    expect(await client.get("/x")).toEqual({ ok: true });
    expect(modes).toEqual(["manual", "follow"]);
  });

  it("no module of Node is imported", () => {
    const source = fileURLToPath(new URL("../../src/", import.meta.url));
    const seen = new Set<string>();
    const foreign = new Set<string>();
    const visit = (file: string) => {
      if (seen.has(file)) return;
      seen.add(file);
      for (const [, from, bare, dynamic] of readFileSync(file, "utf8").matchAll(
        /^(?:import|export)\b(?!\s+type\b)[^;]*?from\s+"([^"]+)"|^import\s+"([^"]+)"|\bimport\("([^"]+)"\)/gm,
      )) {
        const specifier = from ?? bare ?? dynamic ?? "";
        if (specifier === "#platform") visit(join(source, "transport/platform.ts"));
        else if (specifier.startsWith(".")) visit(join(dirname(file), specifier.replace(/\.js$/, ".ts")));
        else foreign.add(specifier);
      }
    };
    visit(join(source, "transport/index.ts"));
    expect(seen.size).toBeGreaterThan(15);
    // Loaded with the first answer in protobuf, and at home everywhere.
    expect([...foreign]).toEqual([
      "@bufbuild/protobuf",
      "@bufbuild/protobuf/codegenv2",
      "@bufbuild/protobuf/wire",
    ]);
    expect([...seen].filter((file) => file.endsWith(".node.ts"))).toEqual([]);
  });
});
