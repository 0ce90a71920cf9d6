import { afterAll, describe, expect, it } from "vitest";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { type MethodResult, methodsNotCalled, runOurMethods } from "./our-methods.js";
import { writeReport } from "./report.js";

/** Set by `npm run conformance -- --against URL`. */
const against = process.env["TINKERTS_AGAINST"] ?? "";

describe("our client", () => {
  const servers: { name: string; rows: MethodResult[] }[] = [];
  afterAll(() => writeReport("other-backends", servers));

  it("finds everything it can ask for answered by the built-in backend", async () => {
    await using backend = await startLocalBackend({
      logger: silent,
      apiKeys: ["tml-one-key-of-the-test"],
      clientConfig: { pjwtAuthEnabled: true },
    });
    const rows = await runOurMethods({ baseURL: backend.baseURL, apiKey: backend.apiKey });
    servers.push({ name: "the built-in backend", rows });
    expect(methodsNotCalled(rows)).toEqual([]);
    expect(rows.filter(({ result }) => result !== "ok")).toEqual([]);
  });

  it.runIf(against !== "")(
    `is tried against ${against}, which offers what it offers`,
    async () => {
      const {
        TINKERTS_AGAINST_KEY: apiKey,
        TINKERTS_AGAINST_MODEL: model,
        TINKERTS_AGAINST_NAME: name,
      } = process.env;
      const rows = await runOurMethods({ baseURL: against, ...(apiKey && { apiKey }) }, model);
      servers.push({ name: name ?? against, rows });
      for (const { method, result } of rows) console.log(`${method.padEnd(55)} ${result}`);
      expect(
        rows.some(({ result }) => result === "ok"),
        "the server answered nothing at all",
      ).toBe(true);
    },
    1_500_000,
  );
});
