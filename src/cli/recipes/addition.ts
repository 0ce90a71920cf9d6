/** Addition by reward: a model that often forgets the carry learns to add from right or wrong alone. */
import { type SamplingClient, ServiceClient } from "tinkerts";
import { evaluate, exactMatch, type RunOptions, trainReinforcement } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";

/** Results that it must reach with tinkerts/nano. */
export const bar = { before: { atMost: 0.7 }, after: { atLeast: 0.95 } };

/** All sums of two numbers below 100; one in seven, the same in both orders, is kept for the test. */
function sums() {
  const [training, heldOut]: { prompt: string; answer: string }[][] = [[], []];
  for (let a = 0; a < 100; a += 1) {
    for (let b = 0; b < 100; b += 1) {
      const sum = { prompt: `What is ${a} + ${b}?`, answer: String(a + b) };
      (((a + 1) * (b + 1)) % 7 === 1 ? heldOut : training)!.push(sum);
    }
  }
  return { training: training!, heldOut: heldOut! };
}

export async function run({ steps = 60, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, model, signal } = options;
  const { training, heldOut } = sums();
  // Every fifth problem: enough to tell 90% from 95%.
  const tasks = heldOut.filter((_, index) => index % 5 === 0);
  const accuracy = async (sampler: SamplingClient) =>
    (await evaluate({ sampler, tasks, grade: exactMatch(), temperature: 0, maxTokens: 16, signal })).score;

  const before = await accuracy(await service.createSamplingClient({ baseModel: model }));
  const { samplerPath } = await trainReinforcement({
    ...options,
    steps,
    problems: training,
    reward: ({ problem, text }) => (text.trim() === problem.answer ? 1 : 0),
    groupSize: 8,
    groupsPerBatch: 32,
    maxTokens: 16,
  });
  const after = await accuracy(await service.createSamplingClient({ modelPath: samplerPath }));
  return { before, after, samplerPath };
}

// A copy of this file runs by itself: npx tsx addition.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
