import { expect, it } from "vitest";
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
}, 120_000);

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
