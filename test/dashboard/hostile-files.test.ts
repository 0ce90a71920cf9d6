import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ReportNode, RunCurves, RunList, Sample, SampleList } from "../../src/dashboard/api.js";
import { createDashboard, type Dashboard } from "../../src/dashboard/index.js";
import { FileCache } from "../../src/dashboard/runs/file-cache.js";
import { fileOf } from "../../src/dashboard/runs/run-folders.js";
import { cpuMsOf } from "../support/cpu-time.js";

/** Deeper than a call stack is. */
const DEEP = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
const NO_TEXT = '{"toString":1,"valueOf":1}';

describe("a dashboard over files that want to harm it", () => {
  let runs: string;
  let dashboard: Dashboard;
  beforeEach(() => {
    runs = mkdtempSync(join(tmpdir(), "tinkerts-hostile-"));
    dashboard = createDashboard({ folders: [runs] });
  });
  afterEach(() => {
    dashboard.close();
    rmSync(runs, { recursive: true, force: true });
  });

  function write(path: string, text: string): void {
    mkdirSync(join(runs, path, ".."), { recursive: true });
    writeFileSync(join(runs, path), text);
  }

  async function ask<T>(path: string): Promise<T> {
    const answer = await dashboard.fetch(
      new Request(`http://127.0.0.1/api/${path}`, {
        headers: { authorization: `Bearer ${dashboard.token}` },
      }),
    );
    const body = await answer.json();
    expect({ path, status: answer.status, body }).toMatchObject({ status: 200 });
    return body as T;
  }

  async function idOf(name: string): Promise<string> {
    const list = await ask<RunList>("runs");
    return list.runs.find((run) => run.name === name)!.id;
  }

  it("is not held up by a line of a million spaces", async () => {
    write(
      "one/metrics.jsonl",
      `{"step":0,"loss":1}\n{"step":${" ".repeat(1_000_000)}1,"loss":NaN\n{"step":2,"loss":NaN}\n`,
    );
    const id = await idOf("one");
    let metrics: RunCurves | undefined;
    const read = async () => (metrics = await ask<RunCurves>(`runs/${id}/metrics`));
    expect(await cpuMsOf(read)).toBeLessThan(5000);
    expect(metrics).toMatchObject({
      rows: 2,
      badLines: 1,
      series: { loss: { steps: [0, 2], values: [1, null] } },
    });
  });

  it("reads on behind values that nest deeper than a stack", async () => {
    write("one/metrics.jsonl", `{"step":0,"loss":1,"deep":${DEEP}}\n{"step":1,"loss":2}\n`);
    const path = `runs/${await idOf("one")}/metrics`;
    for (const _ of [1, 2])
      expect(await ask<RunCurves>(path)).toMatchObject({
        rows: 2,
        texts: { deep: expect.stringContaining("nested") },
      });
  });

  it("shows samples whose fields are anything but what they should be", async () => {
    write("one/metrics.jsonl", "");
    const good = '{"group_idx":1,"total_reward":1,"steps":[]}';
    const bad = `{"tags":[${NO_TEXT},${DEEP}],"weights":[${NO_TEXT},1],"steps":[{"logs":{"a":${DEEP}},"metrics":${DEEP}}],"messages":[{"content":[${DEEP}]}]}`;
    write("one/iteration_000000/train_rollout_summaries.jsonl", `${good}\n${bad}\n`);
    const path = `runs/${await idOf("one")}/samples`;
    expect(await ask<SampleList>(`${path}?step=0`)).toMatchObject({
      samples: [{ group: 1 }, { tokenCount: 1 }],
    });
    expect((await ask<Sample>(`${path}/1?step=0`)).messages).toHaveLength(1);
  });

  it("opens no tokenizer by a path that a run's settings name", async () => {
    const models = {
      absolute: fileURLToPath(new URL("../../models/nano", import.meta.url)),
      relative: "./models/nano",
    };
    const episode = { group_idx: 0, total_reward: 1, steps: [{ tokens: [5], ob_tokens: [6] }] };
    for (const [name, model] of Object.entries(models)) {
      write(`${name}/config.json`, JSON.stringify({ model_name: model }));
      write(`${name}/metrics.jsonl`, "");
      write(`${name}/iteration_000000/train_rollout_summaries.jsonl`, `${JSON.stringify(episode)}\n`);
    }
    for (const name of Object.keys(models)) {
      const { tokenProblem } = await ask<Sample>(`runs/${await idOf(name)}/samples/0?step=0`);
      expect(tokenProblem).toContain("it is not the name of a model");
    }
  });

  it("shows reports whatever their elements are, with every cell of a wide table", async () => {
    const cells = Array.from({ length: 40 }, (_, column) => `{"tag":"td","children":["${column}"]}`).join();
    const children = [
      `{"tag":${NO_TEXT},"children":["odd"]}`,
      "null",
      `{"tag":"p","children":["${"<".repeat(500_000)}"]}`,
      `{"tag":"table","children":[{"tag":"tr","children":[${cells}]}]}`,
    ];
    write("one/metrics.jsonl", "");
    write(
      "one/iteration_000000/train_logtree.json",
      `{"title":"t","root":{"tag":"div","children":[${children}]}}`,
    );
    const id = await idOf("one");
    let report = "";
    const read = async () =>
      (report = JSON.stringify(await ask<ReportNode>(`runs/${id}/reports/train?step=0`)));
    expect(await cpuMsOf(read)).toBeLessThan(5000);
    expect(report).toContain('"odd"');
    expect(report).toContain('"38","39"');
  });

  it("opens no pipe, which would wait forever, and reads no folder as a file", async () => {
    write("piped/checkpoints.jsonl", "");
    execFileSync("mkfifo", ["metrics.jsonl", ".lock"], { cwd: join(runs, "piped") });
    write("odd/checkpoints.jsonl", "");
    mkdirSync(join(runs, "odd/metrics.jsonl"));
    mkdirSync(join(runs, "odd/iteration_000000/train_rollout_summaries.jsonl"), { recursive: true });
    for (const name of ["piped", "odd"])
      expect(await ask<RunCurves>(`runs/${await idOf(name)}/metrics`)).toMatchObject({ rows: 0 });
  });

  it("keeps metrics in memory as long as pages look at them, however many runs those are", async () => {
    const names = Array.from({ length: 24 }, (_, run) => `run-${run}`);
    for (const name of names) write(`${name}/metrics.jsonl`, '{"step":0,"loss":1}\n');
    const { runs: listed } = await ask<RunList>("runs");
    const generations = async () => {
      const found: string[] = [];
      for (const { id } of listed) found.push((await ask<RunCurves>(`runs/${id}/metrics`)).generation);
      return found;
    };
    expect(await generations()).toEqual(await generations());
  });

  it("lists the other runs where one can be read no longer, and those whose files are of another age", async () => {
    write("one/metrics.jsonl", "");
    const ages = [1e13, -1e13];
    for (const [place, seconds] of ages.entries()) {
      write(`aged-${place}/metrics.jsonl`, "");
      utimesSync(join(runs, `aged-${place}/metrics.jsonl`), seconds, seconds);
    }
    const { runs: listed } = await ask<RunList>("runs");
    expect(listed).toHaveLength(3);
    for (const { updatedAt } of listed) expect(() => new Date(updatedAt).toISOString()).not.toThrow();
    const cache = new FileCache(() => Promise.reject(new Error("EACCES")));
    expect(
      await cache.of(
        { id: "", name: "one", path: join(runs, "one"), root: realpathSync(runs) },
        "metrics.jsonl",
      ),
    ).toBe(undefined);
    expect(await fileOf({ id: "", name: "tmp", path: runs, root: "/" }, "one/metrics.jsonl")).toMatch(
      /one\/metrics/,
    );
  });
});
