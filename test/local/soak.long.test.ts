import { expect, it } from "vitest";
import { CompletionLog } from "../../src/local/server/futures/completion-log.js";
import { defaultLimits } from "../../src/local/server/http/limits.js";
import { FakeClock } from "../support/fake-clock.js";
import { fakeModel } from "./fake-engine.js";
import { type Json, passBody, type RawClient, sampleBody, startFake, stepBody } from "./raw-client.js";

const ROUNDS = 20;
const STEPS_PER_ROUND = 5;
const WARM_UP_ROUNDS = 8;
/** A clean round leaves some 20 KB: records of its session, run and samplers, and code being warmed up. Its results alone are 90 KB. */
const BAR_BYTES_PER_ROUND = 50_000;

it("memory stays flat over sessions of training, sampling and saving (bench/soak.mjs is the long form)", async () => {
  // Results that have been fetched are kept for a while; here the keeping is over soon.
  const { backend, client } = await startFake({ limits: { fetchedResults: 10 } });
  const readings: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await playRound(client, round);
    if (round < WARM_UP_ROUNDS) continue;
    globalThis.gc!();
    await new Promise((resolve) => setImmediate(resolve));
    globalThis.gc!();
    const { heapUsed, external } = process.memoryUsage();
    readings.push(heapUsed + external);
  }
  await backend.close();
  expect(medianSlope(readings)).toBeLessThan(BAR_BYTES_PER_ROUND);
});

it("a session of any length keeps a bounded number of completions, samplers and traced requests", async () => {
  const log = new CompletionLog(new FakeClock());
  for (let index = 0; index < 30_000; index += 1) log.add({ state: "finished", requestId: String(index) });
  const { completions, cursor } = await log.after(0, 0, AbortSignal.timeout(1000));
  expect(completions.length).toBeLessThanOrEqual(4000);
  expect([completions.at(-1)?.requestId, cursor]).toEqual(["29999", 30_000]);
  expect(defaultLimits.traceEvents).toBeLessThanOrEqual(4000);

  const { backend, client } = await startFake({ limits: { samplersPerSession: 3, traceEvents: 8 } });
  const sessionId = await client.openSession();
  const samplers: string[] = [];
  for (let index = 0; index < 5; index += 1) {
    const wanted = { session_id: sessionId, sampling_session_seq_id: index, base_model: fakeModel.name };
    samplers.push(String((await client.ok("/create_sampling_session", wanted))["sampling_session_id"]));
  }
  expect((await client.get(`/sessions/${sessionId}`)).body["sampler_ids"]).toEqual(samplers.slice(2));
  expect((await client.post("/asample", sampleBody(samplers[0]!, 1))).status).toBe(404);
  for (let index = 1; index <= 30; index += 1)
    await client.sampleResult(await client.ok("/asample", sampleBody(samplers[4]!, index)));
  const { url } = (await client.get(`/sessions/${sessionId}/trace_export`)).body as { url: string };
  const trace = (await (await client.send("GET", url)).json()) as { traceEvents: { ph: string }[] };
  expect(trace.traceEvents.filter(({ ph }) => ph === "b").length).toBeLessThanOrEqual(10);
  await backend.close();
});

async function playRound(client: RawClient, round: number): Promise<void> {
  const sessionId = await client.openSession();
  const modelId = await client.createModel(sessionId, 0, round);
  const { data } = passBody(modelId, 1, 1)["forward_backward_input"] as { data: Json[] };
  const batch = Array(400).fill(data[0]);
  let seqId = 0;
  for (let step = 0; step < STEPS_PER_ROUND; step += 1) {
    await client.passResult(
      await client.ok("/forward_backward", passBody(modelId, ++seqId, 1, { data: batch })),
    );
    await client.result(client.ok("/optim_step", stepBody(modelId, ++seqId)));
  }
  const freeze = { model_id: modelId, seq_id: ++seqId, sampling_session_seq_id: 0 };
  const { sampling_session_id: samplerId } = await client.result(
    client.ok("/save_weights_for_sampler", freeze),
  );
  for (let sample = 0; sample < 10; sample += 1) {
    const body = sampleBody(String(samplerId), sample, { num_samples: 20, prompt_logprobs: true });
    await client.sampleResult(await client.ok("/asample", body));
  }
  const save = { model_id: modelId, seq_id: ++seqId, path: "state" };
  await client.result(client.ok("/save_weights", save));
  await client.call("DELETE", `/training_runs/${modelId}/checkpoints/weights/state`);
  await client.post(`/sessions/${sessionId}/finish`);
}

/** Of all pairs, so that no single reading decides. */
function medianSlope(readings: readonly number[]): number {
  const slopes = readings.flatMap((first, index) =>
    readings.slice(index + 1).map((second, distance) => (second - first) / (distance + 1)),
  );
  return slopes.sort((a, b) => a - b)[slopes.length >> 1]!;
}
