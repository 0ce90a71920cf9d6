// A client with much to do. Prints its session, and a digest of everything it was answered.
import { createHash } from "node:crypto";
import { ServiceClient } from "tinkerts";
import { scaledClock } from "../shared/scaled-clock.mjs";
import { TINY_MODEL } from "../shared/tiny-model.mjs";

const [baseURL, requests] = process.argv.slice(2);
const service = new ServiceClient({ baseURL, apiKey: "tml-local", logLevel: "off", clock: scaledClock() });
const training = await service.createLoraTrainingClient({ baseModel: TINY_MODEL, rank: 4, seed: 7 });
const sampler = await service.createSamplingClient({ baseModel: TINY_MODEL });
const samples = Array.from({ length: Number(requests) }, () =>
  sampler.sample({
    prompt: [1, 2, 3],
    numSamples: 16,
    samplingParams: { maxTokens: 120, seed: 5, stop: [] },
  }),
);
const steps = Array.from({ length: 100 }, (_, step) => {
  const tokens = Array.from({ length: 100 }, (_, at) => (step * 7 + at * 3) % 96);
  const lossFnInputs = { targetTokens: tokens, weights: tokens.map(() => 1 / 100) };
  const pass = training.forwardBackward(
    Array.from({ length: 8 }, () => ({ modelInput: tokens, lossFnInputs })),
    "cross_entropy",
  );
  const update = training.optimStep({ learningRate: 1e-3 });
  return Promise.all([pass, update]);
});
console.log(`session ${await service.getSessionId()}`);
// All samples have the same seed: however many there are, one answer is what they come to.
const drawn = new Set();
for (const sample of samples)
  drawn.add((await sample).sequences.map(({ tokens }) => tokens.join()).join(";"));
const hash = createHash("sha256").update([...drawn].join("|"));
for (const step of steps) hash.update(`${(await step)[0].metrics["loss:sum"]};`);
console.log(`answers ${hash.digest("hex")}`);
await service.close();
