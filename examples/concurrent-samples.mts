/**
 * Hundreds of samples at once. Start every call and wait for all of them: the client paces the requests, the server
 * batches them, and each answer is the same as if its call ran alone.
 *
 * Runs on the built-in backend, or on the server in TINKER_BASE_URL (with TINKER_API_KEY if it needs one).
 */
import assert from "node:assert/strict";
import { ServiceClient } from "tinkerts";
import { startLocalBackend } from "tinkerts/local";

const baseModel = "tinkerts/nano"; // on another server, one of its models

await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
await using service = new ServiceClient(backend);
const sampler = await service.createSamplingClient({ baseModel });
const tokenizer = await sampler.getTokenizer();
const prompt = tokenizer.encode("Once there was a");

/** One way to go on. Each seed is another one, and the same one on every run. */
async function story(seed: number) {
  const samplingParams = { maxTokens: 24, temperature: 1, seed };
  const { sequences } = await sampler.sample({ prompt, samplingParams });
  const { tokens } = sequences[0]!;
  return { text: tokenizer.decode(tokens, { skipSpecialTokens: true }), tokens: tokens.length };
}
type Story = Awaited<ReturnType<typeof story>>;

/** How many stories come in a second. */
async function measured(how: string, work: () => Promise<Story[]>) {
  const started = performance.now();
  const stories = await work();
  const seconds = (performance.now() - started) / 1000;
  const perSecond = stories.length / seconds;
  const tokensPerSecond = stories.reduce((sum, { tokens }) => sum + tokens, 0) / seconds;
  console.log(
    `${how}: ${stories.length} samples in ${seconds.toFixed(1)} s, ` +
      `${perSecond.toFixed(0)} samples/s, ${tokensPerSecond.toFixed(0)} tokens/s`,
  );
  return { stories, perSecond };
}

await story(0); // the first call also loads the model's weights

const alone = await measured("one after another", async () => {
  const stories: Story[] = [];
  for (let seed = 0; seed < 20; seed += 1) stories.push(await story(seed));
  return stories;
});
const together = await measured("all at once", () =>
  Promise.all(Array.from({ length: 300 }, (_, seed) => story(seed))),
);

for (const { text } of together.stories.slice(0, 3)) console.log(`  Once there was a${text.split("\n")[0]}`);
console.log(`${(together.perSecond / alone.perSecond).toFixed(1)} times as many, and the same stories.`);

assert.deepEqual(
  together.stories.slice(0, alone.stories.length),
  alone.stories,
  "an answer depends on its neighbours",
);
assert.ok(together.perSecond > alone.perSecond, "sampling at once was not faster");
