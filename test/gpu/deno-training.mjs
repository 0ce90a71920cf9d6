// One training step and a greedy sample on the named device, with the package's own bundle; prints them as JSON.
import { ServiceClient } from "../../dist/bundle/index.js";
import { startLocalBackend } from "../../dist/bundle/local.js";

const [device] = process.argv.slice(2);
const backend = await startLocalBackend({ device, listen: false });
const service = new ServiceClient(backend);
const training = await service.createLoraTrainingClient({ baseModel: "tinkerts/nano", rank: 4, seed: 1 });
const input = (tokens) => ({ chunks: [{ type: "encoded_text", tokens }] });
const datum = {
  modelInput: input([5, 6, 7, 8, 9, 10]),
  lossFnInputs: { targetTokens: [6, 7, 8, 9, 10, 11], weights: [1, 1, 1, 1, 1, 1] },
};
const { metrics } = await training.forwardBackward([datum], "cross_entropy");
await training.optimStep({ learningRate: 1e-3 });
const sampler = await training.saveWeightsAndGetSamplingClient();
const { sequences } = await sampler.sample({
  prompt: input([5, 6, 7]),
  numSamples: 1,
  samplingParams: { maxTokens: 4, temperature: 0 },
});
console.log(JSON.stringify({ loss: metrics["loss:sum"], tokens: [...sequences[0].tokens] }));
await service.close();
await backend.close();
