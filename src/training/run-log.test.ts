import { appendFile, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { TinkerError } from "../errors.js";
import { RunLog } from "./run-log.node.js";

describe("RunLog", () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-run-log-"));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));
  const file = (name: string) => readFile(join(folder, name), "utf8");

  it("writes the cookbook's files and fields", async () => {
    await using log = await RunLog.open(folder, { config: { learningRate: 1e-4, model: { rank: 8 } } });
    await log.logMetrics({ loss: 1.5, "env/all/reward": Number.NaN, phase: "train" }, 0);
    await log.logMetrics({ note: true });
    await log.logCheckpoint({
      name: "000020",
      batch: 20,
      epoch: 1,
      statePath: "tinker://run/weights/000020",
      extra: { step: 20, name: "not this one" },
    });
    await log.logCheckpoint({
      name: "final",
      final: true,
      samplerPath: "tinker://run/sampler_weights/final",
    });
    expect(await file("config.json")).toBe(
      JSON.stringify({ learningRate: 1e-4, model: { rank: 8 } }, null, 2),
    );
    expect(await file("metrics.jsonl")).toBe(
      '{"step":0,"loss":1.5,"env/all/reward":null,"phase":"train"}\n{"note":true}\n',
    );
    expect(await file("checkpoints.jsonl")).toBe(
      '{"name":"000020","batch":20,"epoch":1,"state_path":"tinker://run/weights/000020","step":20}\n' +
        '{"name":"final","final":true,"sampler_path":"tinker://run/sampler_weights/final"}\n',
    );
  });

  it("reads what the cookbook wrote, and goes on from the last checkpoint with a state", async () => {
    await writeFile(
      join(folder, "checkpoints.jsonl"),
      '{"name": "000010", "batch": 10, "state_path": "tinker://a/weights/000010", "sampler_path": "tinker://a/sampler_weights/000010"}\n' +
        '{"name": "000015", "epoch": 0, "batch": 15, "sampler_path": "tinker://a/sampler_weights/000015", "own": [1]}\n' +
        '{"name": "old", "step": 3, "state_path": "tinker://a/weights/old"}\n',
    );
    await writeFile(
      join(folder, "metrics.jsonl"),
      '{"step": 3, "loss": NaN, "worst": -Infinity}\n{"step": 4}\n',
    );
    await using log = await RunLog.open(folder);
    expect(log.checkpoints[1]).toEqual({
      name: "000015",
      epoch: 0,
      batch: 15,
      samplerPath: "tinker://a/sampler_weights/000015",
      extra: { own: [1] },
    });
    expect(log.checkpoints).toHaveLength(3);
    expect(log.lastCheckpoint).toEqual({
      name: "000010",
      batch: 10,
      statePath: "tinker://a/weights/000010",
      samplerPath: "tinker://a/sampler_weights/000010",
    });
    expect(log.lastMetricsStep).toBe(4);
    expect(await log.readMetrics()).toEqual([{ step: 3, loss: null, worst: null }, { step: 4 }]);
  });

  it("survives a crash at every byte of a line", async () => {
    const whole = '{"name":"000010","batch":10,"state_path":"tinker://a/weights/ä"}\n';
    const line = Buffer.from('{"name":"000020","batch":20,"state_path":"tinker://a/weights/ü"}\n');
    for (let bytes = 0; bytes <= line.length; bytes += 1) {
      await writeFile(join(folder, "checkpoints.jsonl"), whole);
      await appendFile(join(folder, "checkpoints.jsonl"), line.subarray(0, bytes));
      const isWhole = bytes >= line.length - 1;
      await using log = await RunLog.open(folder);
      expect(log.lastCheckpoint?.batch).toBe(isWhole ? 20 : 10);
      await log.logCheckpoint({ name: "next", batch: 30, statePath: "tinker://a/weights/next" });
      expect((await file("checkpoints.jsonl")).split("\n").map((text) => text.slice(9, 15))).toEqual(
        isWhole ? ["000010", "000020", 'next",', ""] : ["000010", 'next",', ""],
      );
    }
  });

  it("cuts off what a power failure left, but reports a line that something else spoilt", async () => {
    await writeFile(join(folder, "metrics.jsonl"), `{"step":0}\n\0\0\0\0\n\0\0`);
    {
      await using log = await RunLog.open(folder);
      expect(log.lastMetricsStep).toBe(0);
    }
    expect(await file("metrics.jsonl")).toBe('{"step":0}\n');
    await writeFile(join(folder, "metrics.jsonl"), '{"step":0}\nhello\n{"step":1}\n');
    await expect(RunLog.open(folder)).rejects.toThrow(/Line 2 of .*metrics\.jsonl is not a JSON object/);
    // A refused log is not left locked.
    await writeFile(join(folder, "metrics.jsonl"), "");
    await (await RunLog.open(folder)).close();
  });

  it("keeps lines whole and in order when many are written at once", async () => {
    await using log = await RunLog.open(folder);
    await Promise.all(
      Array.from({ length: 50 }, (_, step) => log.logMetrics({ text: "x".repeat(step * 100) }, step)),
    );
    expect((await log.readMetrics()).map(({ step }) => step)).toEqual([...Array(50).keys()]);
    expect((await stat(join(folder, "metrics.jsonl"))).size).toBe((await file("metrics.jsonl")).length);
  });

  it("keeps a metric called step from moving the run", async () => {
    {
      await using log = await RunLog.open(folder);
      await log.logMetrics({ step: 900, loss: 1 }, 3);
    }
    expect(await file("metrics.jsonl")).toBe('{"step":3,"loss":1}\n');
    await using log = await RunLog.open(folder);
    expect(log.lastMetricsStep).toBe(3);
  });

  it("reads settings that Python wrote, and names a file of settings that is spoilt", async () => {
    await writeFile(join(folder, "config.json"), '{"clip": NaN, "rank": 8}');
    {
      await using log = await RunLog.open(folder);
      expect(log.config).toEqual({ clip: null, rank: 8 });
    }
    await writeFile(join(folder, "config.json"), '{"rank": ');
    const error = await RunLog.open(folder).catch((e) => e);
    expect(error).toBeInstanceOf(TinkerError);
    expect(error.message).toBe(`${join(folder, "config.json")} is not a JSON object.`);
  });

  it("refuses another run's settings", async () => {
    await (await RunLog.open(folder, { config: { rank: 8, steps: 10 } })).close();
    await (await RunLog.open(folder, { config: { steps: 10, rank: 8 } })).close();
    await expect(RunLog.open(folder, { config: { rank: 8, steps: 20 } })).rejects.toThrow(
      /config must be that of the run in .*, which differs in steps;/,
    );
    await using log = await RunLog.open(folder, { config: { rank: 8, steps: 20 }, replaceConfig: true });
    expect(log.config).toEqual({ rank: 8, steps: 20 });
    expect(JSON.parse(await file("config.json"))).toEqual({ rank: 8, steps: 20 });
  });

  it("lets one writer in at a time, and takes over from one that is gone", async () => {
    {
      await using _log = await RunLog.open(folder);
      await expect(RunLog.open(folder)).rejects.toThrow(TinkerError);
    }
    await writeFile(join(folder, ".lock"), String(process.ppid));
    await expect(RunLog.open(folder)).rejects.toThrow(`in use by process ${process.ppid}`);
    await writeFile(join(folder, ".lock"), "999999999");
    await (await RunLog.open(folder)).close();
  });
});
