import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ServiceClient } from "../../src/index.js";
import { encodeSampleResponse } from "../../src/wire/protobuf.js";
import { type ProtocolServer, startProtocolServer } from "../support/protocol-server.js";
import { sampleResponse } from "./client.js";

const SAMPLES = 2_000;
const ROUNDS = 3;

describe("2,000 samples at once", () => {
  let server: ProtocolServer;
  const warnings: string[] = [];
  const onWarning = (warning: Error) => warnings.push(`${warning.name}: ${warning.message}`);

  beforeAll(async () => {
    process.on("warning", onWarning);
    server = await startProtocolServer();
    const bytes = encodeSampleResponse(sampleResponse(16));
    server.on("POST /api/v1/asample", (request) => {
      server.requests.length = 0;
      return { json: { request_id: `future-${(request.json() as { seq_id: number }).seq_id}` } };
    });
    server.on("POST /api/v1/retrieve_future", { bytes });
  });
  afterAll(async () => {
    process.off("warning", onWarning);
    await server.close();
  });

  it("end with no socket open, no warning, and the same memory round after round", async () => {
    const service = new ServiceClient({ baseURL: server.url, apiKey: "tml-test" });
    const sampler = await service.createSamplingClient({ baseModel: "test/tiny" });
    const shared = new AbortController();
    const heapBytes: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const samples = Array.from({ length: SAMPLES }, () =>
        sampler.sample({ prompt: [1, 2, 3], samplingParams: { maxTokens: 16 } }, { signal: shared.signal }),
      );
      const results = await Promise.all(samples);
      expect(results.every(({ sequences }) => sequences[0]!.tokens.length === 16)).toBe(true);
      samples.length = 0;
      results.length = 0;
      await new Promise((resolve) => setTimeout(resolve, 50));
      globalThis.gc?.();
      heapBytes.push(process.memoryUsage().heapUsed);
    }
    await service.close();
    await expect.poll(() => server.openConnections()).toBe(0);
    expect(warnings).toEqual([]);
    if (globalThis.gc === undefined)
      throw new Error("run this test with --expose-gc, or memory says nothing");
    const growth = heapBytes.at(-1)! - heapBytes[0]!;
    expect(growth).toBeLessThan(2_000_000);
  });
});
