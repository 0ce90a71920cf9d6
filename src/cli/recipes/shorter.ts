/** Shorter answers: no single answer has a reward; in a tournament among several, the shorter one wins. */
import { type SamplingClient, ServiceClient } from "tinkerts";
import { type Compare, chat, type RunOptions, tournament, trainReinforcement } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";
import { type Message, textOf } from "tinkerts/renderers";

/** Results that it must reach with tinkerts/nano: mean characters of an answer, and the share of empty ones. */
export const bar = { lengthBefore: { atLeast: 15 }, lengthAfter: { atMost: 5 }, emptyAfter: { atMost: 0.1 } };

const THINGS =
  "dogs cats cows birds fish trees flowers books cars ships trains houses rivers hills clouds rain snow bread milk cakes games songs kings queens farmers doctors teachers friends summer winter";
const question = (thing: string) => `Tell me about ${thing}.`;

const lengthOf = (messages: readonly Message[]) => textOf(messages.at(-1)!).trim().length;

/** Compares two answers: -1 if the first wins, 1 if the second does. An empty answer loses. */
const shorterWins: Compare = ({ completionA, completionB }) => {
  const [a, b] = [completionA, completionB].map((answer) => lengthOf(answer) || Number.POSITIVE_INFINITY);
  return a === b ? 0 : a! < b! ? -1 : 1;
};

export async function run({ steps = 12, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, model, signal } = options;
  const things = THINGS.split(" ");
  const measure = async (sampler: SamplingClient) => {
    const answers = things.map((thing, seed) =>
      chat(sampler, [{ role: "user", content: question(thing) }], {
        maxTokens: 32,
        numSamples: 4,
        seed,
        signal,
      }),
    );
    const lengths = (await Promise.all(answers)).flatMap(({ samples }) =>
      samples.map(({ message }) => lengthOf([message])),
    );
    return {
      length: lengths.reduce((sum, length) => sum + length, 0) / lengths.length,
      empty: lengths.filter((length) => length === 0).length / lengths.length,
    };
  };

  const before = await measure(await service.createSamplingClient({ baseModel: model }));
  const { samplerPath } = await trainReinforcement({
    ...options,
    environments: (context) =>
      tournament({
        ...context,
        prompts: things.map((thing) => ({ prompt: question(thing) })),
        compare: shorterWins,
      }),
    steps,
    groupSize: 8,
    groupsPerBatch: 16,
    maxTokens: 32,
  });
  const after = await measure(await service.createSamplingClient({ modelPath: samplerPath }));
  return { lengthBefore: before.length, lengthAfter: after.length, emptyAfter: after.empty, samplerPath };
}

// A copy of this file runs by itself: npx tsx shorter.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
