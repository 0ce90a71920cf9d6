import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { endpoints } from "./endpoints.mjs";
import { runHostile } from "./run.mjs";

const routesFolder = new URL("../../../src/local/server/", import.meta.url).pathname;

describe("hostile input to the built-in backend", () => {
  it("is refused, quickly, without harm to the server or to others: a short form of `npm run faults`", async () => {
    const result = await runHostile({ seed: 7, requests: 1000 });
    expect(result.differences).toEqual([]);
    expect(result.requests).toBe(1000);
    expect(Object.keys(result.byKind).length).toBeGreaterThanOrEqual(14);
  }, 180_000);

  it("is made for every endpoint there is", () => {
    const ids = { model: "M", session: "S", sampler: "A", weights: "w", externalWeights: "e", nextSeqId: 1 };
    const covered = new Set(endpoints(ids, 0).map(({ method, path }) => `${method} ${path.split("?")[0]}`));
    const missing: string[] = [];
    for (const file of readdirSync(routesFolder).filter((name) => /^(routes-.*|app)\.ts$/.test(name))) {
      const source = readFileSync(join(routesFolder, file), "utf8");
      for (const [, method, path] of source.matchAll(/app\.(get|post|put|delete)\(\s*["`]([^"`]+)["`]/g)) {
        const pattern = path!
          .replace(/^\$\{CHECKPOINT\}/, "/api/v1/training_runs/:run/checkpoints/:kind/:name")
          .replaceAll(/:\w+/g, "[^/]+");
        const isCovered = [...covered].some((one) =>
          new RegExp(`^${method!.toUpperCase()} ${pattern}$`).test(one),
        );
        if (!isCovered) missing.push(`${method} ${path}`);
      }
    }
    expect(missing).toEqual([]);
    expect(covered.size).toBeGreaterThan(50);
  });
});
