import { appendFileSync, mkdtempSync, renameSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { MetricsFile } from "./metrics-file.js";

const WHOLE = { points: 2000 };

describe("a run's metrics", () => {
  let folder: string;
  let path: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "tinkerts-metrics-"));
    path = join(folder, "metrics.jsonl");
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const write = (...lines: readonly object[]) =>
    appendFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));

  it("are read as they grow, half lines when they are whole", async () => {
    const file = new MetricsFile("run", path);
    expect((await file.read(WHOLE)).rows).toBe(0);
    write({ step: 0, loss: 3 }, { step: 1, loss: 2 });
    const first = await file.read(WHOLE);
    expect(first.series["loss"]).toMatchObject({ steps: [0, 1], values: [3, 2] });
    appendFileSync(path, '{"step": 2, "lo');
    expect(await file.growth(first)).toBeUndefined();
    appendFileSync(path, 'ss": 1.5, "test/nll": 9}\n');
    const growth = await file.growth(first);
    expect(growth).toMatchObject({ from: 2, rows: 3, generation: first.generation });
    if (growth === "stale" || growth === undefined) throw new Error("there is growth");
    expect(growth.series["loss"]).toMatchObject({ steps: [2], values: [1.5], stats: { count: 3, min: 1.5 } });
    expect(growth.series["test/nll"]).toMatchObject({ steps: [2], values: [9] });
    expect(await file.growth(growth)).toBeUndefined();
  });

  it.each([
    ["replaced by another file", () => renameSync(join(folder, "other"), path)],
    ["cut and written anew, longer than before", () => truncateSync(path, 0)],
  ])("begin anew where the file was %s", async (_, replace) => {
    const file = new MetricsFile("run", path);
    write({ step: 0, loss: 1 }, { step: 1, loss: 1 });
    const first = await file.read(WHOLE);
    writeFileSync(join(folder, "other"), "");
    replace();
    for (let step = 0; step < 9; step += 1) write({ step, loss: 7 });
    expect(await file.growth(first)).toBe("stale");
    const second = await file.read(WHOLE);
    expect(second.generation).not.toBe(first.generation);
    expect(second).toMatchObject({ rows: 9, series: { loss: { values: Array(9).fill(7) } } });
  });

  it("survive values that are not numbers, and lines that are not objects", async () => {
    appendFileSync(
      path,
      '{"step": 0, "loss": NaN, "grad": -Infinity, "note": "<img src=x onerror=alert(1)>"}\n',
    );
    appendFileSync(
      path,
      'null\n[1]\nTraceback (most recent call last)\n\n{"step": 1, "loss": 1e308, "grad": 1e999}\n',
    );
    appendFileSync(path, `${"x".repeat(20 << 20)}\n{"step": 2, "loss": 2, "flag": true, "__proto__": 4}\n`);
    const { rows, badLines, series, texts } = await new MetricsFile("run", path).read(WHOLE);
    expect({ rows, badLines }).toEqual({ rows: 3, badLines: 4 });
    expect(series["loss"]).toMatchObject({
      values: [null, 1e308, 2],
      stats: { notFinite: 1, firstNotFiniteStep: 0 },
    });
    expect(series["grad"]).toMatchObject({
      values: [null, null],
      stats: { notFinite: 2, min: null, last: null },
    });
    expect(series["flag"]?.values).toEqual([1]);
    expect(Object.hasOwn(series, "__proto__")).toBe(true);
    expect(texts).toEqual({ note: "<img src=x onerror=alert(1)>" });
  });

  it("keep every peak when they are thinned out, and means for smoothing", async () => {
    for (let start = 0; start < 50_000; start += 5000)
      write(
        ...Array.from({ length: 5000 }, (_, at) => ({
          step: start + at,
          loss: start + at === 31_234 ? 99 : 1,
        })),
      );
    const { series } = await new MetricsFile("run", path).read({ points: 1000 });
    const { steps, values, means, stats } = series["loss"]!;
    expect(steps.length).toBeLessThanOrEqual(1000);
    expect(steps[values.indexOf(99)]).toBe(31_234);
    expect(means?.steps).toHaveLength(500);
    expect(means?.counts.reduce((sum, count) => sum + count)).toBe(50_000);
    expect(Math.max(...(means!.values as number[]))).toBeCloseTo(1.98);
    expect(stats).toMatchObject({ count: 50_000, max: 99, last: 1, lastStep: 49_999 });
    const part = await new MetricsFile("run", path).read({ points: 1000, fromStep: 31_200, toStep: 31_299 });
    expect(part.series["loss"]?.steps).toEqual(Array.from({ length: 100 }, (_, at) => 31_200 + at));
  });

  it("of a run that went back to an earlier step are the ones it wrote last", async () => {
    write(
      { step: 0, loss: 5 },
      { step: 1, loss: 4 },
      { step: 2, loss: 3 },
      { step: 1, loss: 2 },
      { step: 2, loss: 1 },
    );
    const { series } = await new MetricsFile("run", path).read(WHOLE);
    expect(series["loss"]).toMatchObject({ steps: [0, 1, 2], values: [5, 2, 1] });
    for (let start = 0; start < 2; start += 1)
      write(...Array.from({ length: 3000 }, (_, step) => ({ step: step * 2 + start, loss: start })));
    const thinned = (await new MetricsFile("run", path).read({ points: 100 })).series["loss"]!;
    expect(thinned.steps).toEqual(thinned.steps.toSorted((one, other) => one - other));
    expect(thinned.means).toBeUndefined();
  });

  it("have the times of their lines, or those that the steps took", async () => {
    write({ step: 0, time: 1000, loss: 1 }, { step: 1, time: 1002.5, loss: 1 });
    expect((await new MetricsFile("run", path).read(WHOLE)).series["loss"]?.times).toEqual([0, 2.5]);
    writeFileSync(path, "");
    write({ step: 0, "time/total": 2, loss: 1 }, { step: 1, "time/total": 3, loss: 1 });
    expect((await new MetricsFile("run", path).read(WHOLE)).series["loss"]?.times).toEqual([2, 5]);
    writeFileSync(path, "");
    write({ loss: 1 }, { loss: 2 });
    const plain = await new MetricsFile("run", path).read(WHOLE);
    expect(plain).toMatchObject({ hasTimes: false, series: { loss: { steps: [0, 1], times: [] } } });
  });

  it("are a table that no spreadsheet computes", async () => {
    write({ step: 0, loss: 1 }, { step: 1, '=cmd|"x"': 2, loss: 3 });
    const pieces = await new MetricsFile("run", path).csv();
    expect([...pieces].join("")).toBe('step,loss,"\'=cmd|""x"""\r\n0,1,\r\n1,3,2\r\n');
  });

  it("are the same numbers that JSON.parse reads, whichever way they are written", async () => {
    const numbers = [
      ...["0", "-0", "7", "-12", "0.1", "1.5e3", "1E-7", "1e+2", "5e-324", "1.7976931348623157e308", "1e400"],
      ...["9007199254740991", "9007199254740993", "123456789012345678901234567890", "0.30000000000000004"],
      ...["2.9999400005999957", "0.00009999950000000001", "1e22", "1e23", "123456789e-30"],
      ...Array.from({ length: 2000 }, (_, at) => String(Math.sin(at * at) * 10 ** ((at % 40) - 20))),
    ];
    appendFileSync(
      path,
      numbers.map((text, step) => `{"step": ${step}, "a": ${text}, "b":${text}}\n`).join(""),
    );
    const { rows, series } = await new MetricsFile("run", path).read({ points: 10_000 });
    const expected = numbers.map((text) => JSON.parse(text) as number);
    expect(rows).toBe(numbers.length);
    for (const name of ["a", "b"])
      expect(series[name]!.values).toEqual(expected.map((value) => (Number.isFinite(value) ? value : null)));
  });

  it("are read from lines of many shapes, also where one is only nearly like the line before it", async () => {
    const plain = (step: number) => `{"step":${step},"2":1,"loss":${step}}\n`;
    const odd = [
      '{"step":5,"2":1,"loss":5,"test/nll":3}\n',
      '{"step":6,"2":1,"loss":6 }\r\n',
      '{"step":7,"2":1,"lossy":7}\n',
      '{"step":8,"2":1,"loss":8,"loss":9}\n',
      '{"step":9,"2":1,"loss":"text"}\n',
      '{"step":10,"2":1,"loss":null}\n',
      '{"step":11,"2":true,"a\\"2":1,"loss":11}\n',
      '{"loss":12,"2":1,"step":12}\n',
      '{"2":1}\n',
    ];
    const bad = ["01", "1.", ".5", "1e", "+1", "1 2", "0x1", "1,", "-"].map(
      (text) => `{"step":20,"2":1,"loss":${text}}\n`,
    );
    appendFileSync(
      path,
      odd.flatMap((line, at) => [plain(100 + 2 * at), line, plain(101 + 2 * at)]).join(""),
    );
    appendFileSync(path, bad.join(plain(200)));
    const { rows, badLines, texts, series } = await new MetricsFile("run", path).read({ points: 10_000 });
    expect({ rows, badLines, texts }).toEqual({
      rows: 3 * odd.length + bad.length - 1,
      badLines: bad.length,
      texts: { loss: "text" },
    });
    expect(Object.keys(series).toSorted()).toEqual(["2", 'a"2', "loss", "lossy", "test/nll"]);
    const loss = series["loss"]!;
    expect([5, 6, 8, 9, 10, 11, 12, 113].map((step) => loss.values[loss.steps.indexOf(step)])).toEqual([
      ...[5, 6, 9, undefined, null, 11, 12, 113],
    ]);
    expect(series["lossy"]).toMatchObject({ steps: [7], values: [7] });
    expect(series["2"]!.stats.count).toBe(rows);
  });
});
