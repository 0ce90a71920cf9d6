// Another customer of the server: draws the same 8 tokens again and again, and tells when they are not the same.
import { watch } from "./watcher.mjs";

const LONGEST_WAIT_MS = 60_000;
const [port, key, model] = process.argv.slice(2);
const differences = [];
let expected;
await watch(
  async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/v1/completions`, {
      method: "POST",
      signal: AbortSignal.timeout(LONGEST_WAIT_MS),
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model, prompt: [20, 21, 22, 23], max_tokens: 8, temperature: 1, seed: 5 }),
    }).then(
      async (response) => `${response.status} ${JSON.stringify((await response.json()).choices)}`,
      (error) => `no answer: ${error.message}`,
    );
    expected ??= answer;
    if ((answer !== expected || !answer.startsWith("200")) && differences.length < 10)
      differences.push(`the neighbour's sample is ${answer}, was ${expected}`);
    return true;
  },
  5,
  () => ({ differences }),
);
