import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { RunList, RunSummary } from "../../src/dashboard/api.js";
import { createDashboard } from "../../src/dashboard/index.js";

describe("what the list says of a run", () => {
  let home: string;
  let folder: string;
  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), "tinkerts-facts-"));
    folder = join(home, "runs/one");
    mkdirSync(folder, { recursive: true });
  });
  afterEach(() => rmSync(home, { recursive: true, force: true }));

  function opened(options: { readOnly?: boolean } = {}) {
    const dashboard = createDashboard({ folders: [join(home, "runs")], ...options });
    const headers = { authorization: `Bearer ${dashboard.token}`, "content-type": "application/json" };
    const ask = async (path: string, body?: string) =>
      dashboard.fetch(
        new Request(`http://127.0.0.1:8643/api/${path}`, {
          headers: { ...headers, ...(body !== undefined && { "content-length": String(body.length) }) },
          ...(body !== undefined && { method: "POST", body }),
        }),
      );
    const one = async (): Promise<RunSummary> =>
      ((await (await ask("runs")).json()) as RunList).runs.find(({ name }) => name === "one")!;
    return { ask, one };
  }
  const line = (step: number, more: object = {}) =>
    `${JSON.stringify({ step, time: 1e9 + step, train_mean_nll: 1 + 1 / (step + 1), ...more })}\n`;

  it("has the best of all evaluations, wherever it stands in a long file, and follows it", async () => {
    const path = join(folder, "metrics.jsonl");
    const lines = Array.from({ length: 60_000 }, (_, step) =>
      line(step, step % 1000 === 17 ? { "test/nll": step === 31_017 ? 0.5 : 2 } : {}),
    );
    writeFileSync(path, lines.join(""));
    const { one } = opened();
    // The list shows what is read so far.
    await vi.waitFor(async () =>
      expect(await one()).toMatchObject({
        best: { metric: "test/nll", ...{ value: 0.5, step: 31_017, isLowerBetter: true } },
        ...{ seconds: 59_999, startedAt: 1e12 },
      }),
    );
    const { curve } = await one();
    expect(curve.length).toBeGreaterThan(20);
    expect(curve.length).toBeLessThan(100);
    expect(curve[0]).toBe(2);
    appendFileSync(path, line(60_000, { "test/nll": 0.25 }));
    await vi.waitFor(async () => expect((await one()).best).toMatchObject({ value: 0.25, step: 60_000 }));
    // Another run in the same folder.
    writeFileSync(
      join(folder, "other"),
      line(0, { "eval/sums/score": 0.1 }) + line(1, { "eval/sums/score": 0.4 }),
    );
    renameSync(join(folder, "other"), path);
    await vi.waitFor(async () =>
      expect((await one()).best).toEqual({
        metric: "eval/sums/score",
        ...{ value: 0.4, step: 1, isLowerBetter: false },
      }),
    );
  });

  it("has the metric and the direction of its sweep, and settings, warnings and notes as far as they can be read", async () => {
    writeFileSync(
      join(folder, "metrics.jsonl"),
      line(0, { score: 3 }) + line(1, { score: 1, "test/nll": 2 }),
    );
    const sweep = {
      metric: "score",
      direction: "max",
      runs: [{ folder: "one", settings: { rate: [1, 2] } }, 7],
    };
    writeFileSync(join(home, "runs/sweep.json"), JSON.stringify(sweep));
    writeFileSync(
      join(folder, "config.json"),
      `{"__proto__": 1, "deep": {"a": "b"}, "long": "${"x".repeat(5000)}"}`,
    );
    const warnings = [
      { step: 1, kind: "kl", message: "m".repeat(9000) },
      { step: "no", message: "x" },
      7,
      null,
    ];
    writeFileSync(
      join(folder, "warnings.jsonl"),
      `${warnings.map((one) => JSON.stringify(one)).join("\n")}\n{"ha`,
    );
    writeFileSync(join(folder, "notes.json"), '{"tags": [1, "", "good", "good"], "note": 7}');
    const run = await opened().one();
    expect(run.best).toEqual({ metric: "score", value: 3, step: 0, isLowerBetter: false });
    expect(run.sweep).toMatchObject({ name: "runs", settings: { rate: "[1,2]" } });
    expect(run.config["deep"]).toBe('{"a":"b"}');
    expect(Object.hasOwn(run.config, "__proto__")).toBe(true);
    expect(String(run.config["long"]).length).toBeLessThan(200);
    expect(run.warnings.map(({ kind, message }) => [kind, message.length])).toEqual([["kl", 1000]]);
    expect({ tags: run.tags, note: run.note }).toEqual({ tags: ["good"], note: "" });
  });

  it("takes tags and notes within bounds, never through a link, and not at all where it is read-only", async () => {
    writeFileSync(join(folder, "metrics.jsonl"), line(0));
    const { ask, one } = opened();
    const path = `runs/${(await one()).id}/notes`;
    for (const [body, words] of [
      [{ tags: "good", note: "" }, /tags/],
      [{ tags: ["x".repeat(61)], note: "" }, /tags\.0/],
      [{ tags: Array(21).fill("x"), note: "" }, /tags/],
      [{ tags: [], note: "x".repeat(4001) }, /note/],
      [{ tags: [] }, /note/],
      [{ tags: [], note: "", path: "../x" }, /path/],
    ] as const) {
      const answer = await ask(path, JSON.stringify(body));
      expect(answer.status).toBe(400);
      expect(((await answer.json()) as { error: string }).error).toMatch(words);
    }
    // A link at its place is replaced, and what it leads to is left alone.
    writeFileSync(join(home, "outside.json"), "outside");
    symlinkSync(join(home, "outside.json"), join(folder, "notes.json"));
    expect((await ask(path, '{"tags":["good"],"note":"n"}')).status).toBe(200);
    expect(await one()).toMatchObject({ tags: ["good"], note: "n" });
    rmSync(join(folder, "notes.json"));
    expect((await opened({ readOnly: true }).ask(path, '{"tags":[],"note":"n"}')).status).toBe(403);
    expect(existsSync(join(folder, "notes.json"))).toBe(false);
  });
});
