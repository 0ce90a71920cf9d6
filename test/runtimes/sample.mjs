// A user's script, the same for every runtime: it opens a session, samples once and prints what it got.
import { ServiceClient, ValidationError } from "tinkerts";

const service = new ServiceClient({ baseURL: process.argv[2], apiKey: "tml-runtimes" });
const sampler = await service.createSamplingClient({ baseModel: "test/tiny" });

let refused;
try {
  sampler.sample({ prompt: [1, -2] });
} catch (error) {
  refused = error instanceof ValidationError ? error.field : String(error);
}

const { sequences } = await sampler.sample({ prompt: [1, 2, 3], samplingParams: { maxTokens: 8 } });
await service.close();
const [{ tokens, logprobs, stopReason }] = sequences;
console.log(JSON.stringify({ tokens: [...tokens], logprobs: [...logprobs], stopReason, refused }));
