/** Preferences: from pairs of a right and a wrong sum, a model that forgets the carry learns to prefer the right ones (DPO). */
import { type SamplingClient, ServiceClient } from "tinkerts";
import { comparisons, evaluate, exactMatch, type RunOptions, trainDpo } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";
import { getRenderer, type Renderer } from "tinkerts/renderers";

/** Results that it must reach with tinkerts/nano: pairs whose right answer is likelier, and sums answered correctly. */
export const bar = {
  preferredBefore: { atMost: 0.25 },
  preferredAfter: { atLeast: 0.95 },
  rightAfter: { atLeast: 0.8 },
};

/** Sums with a carry; the rejected answer lost it: 47 + 38 = 75. One in seven is kept for the test. */
function pairs() {
  const [training, heldOut]: { prompt: string; chosen: string; rejected: string }[][] = [[], []];
  for (let a = 0; a < 100; a += 1) {
    for (let b = 0; b < 100; b += 1) {
      if ((a % 10) + (b % 10) < 11) continue;
      const pair = { prompt: `What is ${a} + ${b}?`, chosen: String(a + b), rejected: String(a + b - 10) };
      (((a + 1) * (b + 1)) % 7 === 1 ? heldOut : training)!.push(pair);
    }
  }
  return { training: training!, heldOut: heldOut!.filter((_, index) => index % 3 === 0) };
}

/** The logprob of an answer under a model. */
async function logprob(sampler: SamplingClient, renderer: Renderer, prompt: string, answer: string) {
  const { input, weights } = renderer.buildSupervisedExample([
    { role: "user", content: prompt },
    { role: "assistant", content: answer },
  ]);
  const logprobs = await sampler.computeLogprobs(input);
  return logprobs.reduce<number>((sum, value, place) => sum + weights[place]! * (value ?? 0), 0);
}

export async function run({ steps = 60, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, model, signal } = options;
  const { training, heldOut } = pairs();
  const tasks = heldOut.map(({ prompt, chosen }) => ({ prompt, answer: chosen }));
  const measure = async (sampler: SamplingClient) => {
    const renderer = getRenderer({ model: await sampler.getBaseModel() }, await sampler.getTokenizer());
    const isPreferred = await Promise.all(
      heldOut.map(async ({ prompt, chosen, rejected }) => {
        const [better, worse] = [chosen, rejected].map((answer) =>
          logprob(sampler, renderer, prompt, answer),
        );
        return (await better!) > (await worse!);
      }),
    );
    const grade = exactMatch();
    const { score } = await evaluate({ sampler, tasks, grade, temperature: 0, maxTokens: 16, signal });
    return { preferred: isPreferred.filter(Boolean).length / heldOut.length, right: score };
  };

  const before = await measure(await service.createSamplingClient({ baseModel: model }));
  const { samplerPath } = await trainDpo({
    ...options,
    data: comparisons(training),
    epochs: Math.ceil((32 * steps) / training.length),
    maxSteps: steps,
    batchSize: 32,
    testSize: 0,
    // High, so that the model stays close to its start: there are many more wrong numbers than the rejected one.
    beta: 2,
  });
  const after = await measure(await service.createSamplingClient({ modelPath: samplerPath }));
  return {
    preferredBefore: before.preferred,
    preferredAfter: after.preferred,
    rightBefore: before.right,
    rightAfter: after.right,
    samplerPath,
  };
}

// A copy of this file runs by itself: npx tsx dpo-sums.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
