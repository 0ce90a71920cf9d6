import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type ServiceClient, TinkerError, type TrainingClient } from "../../src/index.js";
import { compileLossGraph, evaluateProgram, PassMeter } from "../../src/training/loss-graph/index.js";
import { GRAPH_KINDS, hostileGraph } from "../faults/hostile/graphs.mjs";
import { randomFor } from "../faults/shared/random.mjs";
import { cpuMsOf } from "../support/cpu-time.js";
import { cases } from "../support/long.js";
import { startTinyBackend, TINY } from "../support/tiny-backend.js";

const GRAPHS = cases(2000, 180);
/** What checking and running one graph may compute, its limits included; far above what it takes. */
const MAX_CPU_MS = 20_000;

describe("hostile custom losses", () => {
  let service: ServiceClient;
  let training: TrainingClient;
  let close: () => Promise<void>;
  beforeAll(async () => {
    ({ service, close } = await startTinyBackend());
    training = await service.createLoraTrainingClient({ baseModel: TINY, rank: 2 });
  });
  afterAll(() => close());

  const datum = {
    modelInput: Array.from({ length: 16 }, (_, at) => at + 1),
    lossFnInputs: { targetTokens: Int32Array.from({ length: 16 }, (_, at) => at + 2) },
  };

  /** What became of a graph: where it was refused and why, or nothing. */
  async function attempt(sessionId: string, index: number): Promise<string | undefined> {
    const { graph } = hostileGraph(randomFor("graphs", 1, index), index);
    const json = {
      ...{ session_id: sessionId, custom_loss_seq_id: index, name: "hostile" },
      ...{ inputs: [{ name: "logprobs", rank: 1 }], graph },
    };
    try {
      const body = new TextEncoder().encode(JSON.stringify(json));
      await service.post("/api/v1/create_custom_loss", {
        body,
        contentType: "application/json",
        maxRetries: 0,
      });
      const config = { lossId: `${sessionId}:loss:${index}` };
      await training.forwardBackward([datum, datum], "custom", { config, maxRetries: 0 });
      return undefined;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  it.each([9, 3000, 20_000])("are refused with arguments nested %i deep", async (depth) => {
    const sessionId = await service.getSessionId();
    const deep = `${"[".repeat(depth)}1${"]".repeat(depth)}`;
    const node = `{"op":"call_function","name":"n","target":"torch.exp","args":${deep},"kwargs":{}}`;
    const inputs = '[{"name":"logprobs","rank":1}]';
    const body = `{"session_id":"${sessionId}","custom_loss_seq_id":9,"name":"deep","inputs":${inputs},"graph":{"nodes":[${node}]}}`;
    const sent = service.post("/api/v1/create_custom_loss", {
      body: new TextEncoder().encode(body),
      contentType: "application/json",
      maxRetries: 0,
    });
    await expect(sent).rejects.toThrow(/answered 4\d\d/);
  });

  it(`are checked and run within bounds, ${GRAPHS} of them`, async () => {
    const inputs = [{ name: "logprobs", rank: 1 }] as const;
    const logprobs = { values: new Float32Array(16).fill(-2), shape: [16] };
    for (let index = 0; index < GRAPHS; index++) {
      const { kind, graph, mustRefuse } = hostileGraph(randomFor("graphs", 2, index), index);
      let refusal: unknown;
      const cpuMs = await cpuMsOf(() => {
        try {
          const program = compileLossGraph(graph, inputs);
          const meter = new PassMeter(16);
          meter.startDatum(16);
          evaluateProgram(program, logprobs, [], meter);
        } catch (error) {
          refusal = error;
        }
      });
      expect(cpuMs, `${kind} ${index}`).toBeLessThan(MAX_CPU_MS);
      if (refusal === undefined) expect(mustRefuse ?? false, `${kind} ${index}`).toBe(false);
      else expect(refusal, `${kind} ${index}`).toBeInstanceOf(TinkerError);
    }
  });

  it("are refused, or run in bounded time, and the next pass trains", async () => {
    const sessionId = await service.getSessionId();
    const refused = new Set<string>();
    for (let index = 0; index < cases(400, GRAPH_KINDS.length); index++) {
      const { kind, mustRefuse } = hostileGraph(randomFor("graphs", 1, index), index);
      let why: string | undefined;
      const cpuMs = await cpuMsOf(async () => {
        why = await attempt(sessionId, index);
      });
      expect(cpuMs, `${kind} ${index}`).toBeLessThan(MAX_CPU_MS);
      if (why !== undefined) {
        refused.add(kind);
        expect(why, `${kind} ${index}`).toMatch(/answered 4\d\d|data\[\d+\]: /);
      } else expect(mustRefuse ?? false, `${kind} ${index}`).toBe(false);
    }
    expect(refused.size).toBeGreaterThanOrEqual(cases(GRAPH_KINDS.length, 12));
    const { metrics } = await training.forwardBackward([datum], "cross_entropy");
    expect(metrics["loss:sum"]).toBeGreaterThan(0);
  });
});
