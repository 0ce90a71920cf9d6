/** Asynchronous beside synchronous reinforcement: the same sums, sampled while others are trained on. */
import { type SamplingClient, ServiceClient } from "tinkerts";
import { evaluate, exactMatch, type RunOptions, trainReinforcement } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";

/** Results that it must reach with tinkerts/nano. */
export const bar = { synchronousAfter: { atLeast: 0.9 }, asynchronousAfter: { atLeast: 0.9 } };

/** All sums of two numbers below 100; one in seven, the same in both orders, is kept for the test. */
function sums() {
  const [training, heldOut]: { prompt: string; answer: string }[][] = [[], []];
  for (let a = 0; a < 100; a += 1) {
    for (let b = 0; b < 100; b += 1) {
      const sum = { prompt: `What is ${a} + ${b}?`, answer: String(a + b) };
      (((a + 1) * (b + 1)) % 7 === 1 ? heldOut : training)!.push(sum);
    }
  }
  return { training: training!, heldOut: heldOut!.filter((_, index) => index % 5 === 0) };
}

export async function run({ steps = 30, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, model, folder, signal } = options;
  const { training, heldOut: tasks } = sums();
  const accuracy = async (sampler: SamplingClient) =>
    (await evaluate({ sampler, tasks, grade: exactMatch(), temperature: 0, maxTokens: 16, signal })).score;
  const train = async (mode: "synchronous" | "asynchronous") => {
    const started = performance.now();
    const { samplerPath } = await trainReinforcement({
      ...options,
      folder: folder && `${folder}/${mode}`,
      mode,
      // Clips the ratio where the sampler's weights are older than the trained ones.
      loss: "ppo",
      steps,
      problems: training,
      reward: ({ problem, text }) => (text.trim() === problem.answer ? 1 : 0),
      groupSize: 8,
      groupsPerBatch: 32,
      maxTokens: 16,
    });
    const seconds = Math.round((performance.now() - started) / 100) / 10;
    return {
      after: await accuracy(await service.createSamplingClient({ modelPath: samplerPath })),
      seconds,
      samplerPath,
    };
  };

  const before = await accuracy(await service.createSamplingClient({ baseModel: model }));
  const synchronous = await train("synchronous");
  const asynchronous = await train("asynchronous");
  return {
    before,
    synchronousAfter: synchronous.after,
    synchronousSeconds: synchronous.seconds,
    asynchronousAfter: asynchronous.after,
    asynchronousSeconds: asynchronous.seconds,
    samplerPath: asynchronous.samplerPath,
  };
}

// A copy of this file runs by itself: npx tsx async-addition.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
