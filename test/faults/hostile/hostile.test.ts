import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { endpoints as table } from "../../../src/wire/index.js";
import { longTest } from "../../support/long.js";
import { runBeside } from "./beside.mjs";
import { endpoints } from "./endpoints.mjs";
import { runHostile } from "./run.mjs";

/** Where the server adds OpenAI's routes; tokenizers lie beside them. */
const OPENAI_BASE = "(/oai/api)?(/v1)?";

const serverFolder = new URL("../../../src/local/server/", import.meta.url).pathname;

describe("hostile input to the built-in backend", () => {
  longTest(
    "is refused, quickly, without harm to the server or to others: a short form of `npm run faults`",
    async () => {
      const result = await runHostile({ seed: 7, requests: 1000 });
      expect(result.differences).toEqual([]);
      expect(result.requests).toBe(1000);
      expect(Object.keys(result.byKind).length).toBeGreaterThanOrEqual(14);
    },
  );

  for (const [only, count] of [
    ["schemas", 30],
    ["templates", 46],
  ] as const) {
    longTest(`does not reach a neighbour: a short form of the ${only} of \`npm run faults\``, async () => {
      const [attack] = await runBeside({ seed: 3, count, only });
      expect(attack!.differences).toEqual([]);
      expect(attack!.requests).toBe(count);
      expect(attack!.byStatus["200"]).toBeGreaterThan(0);
    });
  }

  it("is made for every endpoint there is", () => {
    const ids = {
      model: "M",
      session: "S",
      sampler: "A",
      weights: "w",
      samplerWeights: "s",
      externalWeights: "e",
      nextSeqId: 1,
    };
    const covered = new Set(endpoints(ids, 0).map(({ method, path }) => `${method} ${path.split("?")[0]}`));
    // Those of the table, and those that other formats own: the downloads, and OpenAI's.
    const routes = Object.values(table).map(({ method, path }) => ({
      method: method as string,
      path: path as string,
    }));
    for (const file of readdirSync(serverFolder, { recursive: true, encoding: "utf8" })) {
      if (!file.endsWith(".ts")) continue;
      const source = readFileSync(join(serverFolder, file), "utf8");
      for (const [, method, path] of source.matchAll(/\bapp\.(get|post|put|delete)\(\s*["`]([^"`]+)["`]/g))
        routes.push({ method: method!.toUpperCase(), path: path!.replace(/^\$\{\w+\}/, OPENAI_BASE) });
    }
    const missing = routes.filter(({ method, path }) => {
      const pattern = new RegExp(`^${method} ${path.replaceAll(/:\w+(\{\.\+\})?/g, "[^/]+")}$`);
      return ![...covered].some((one) => pattern.test(one));
    });
    expect(missing).toEqual([]);
    expect(covered.size).toBeGreaterThan(50);
  });
});
