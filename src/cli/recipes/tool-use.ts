/**
 * Tool use: a model saw examples of calling a tool and of giving up, and learns from rewards that calling the tool
 * pays.
 */
import { type SamplingClient, ServiceClient } from "tinkerts";
import {
  conversations,
  environmentGroups,
  type RunOptions,
  runRollout,
  samplerPolicy,
  tool,
  toolEnvironment,
  trainReinforcement,
  trainSupervised,
} from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";
import { getRenderer, type Renderer } from "tinkerts/renderers";

/**
 * Results that it must reach with tinkerts/nano: words reversed correctly at the start, after the examples, and after
 * practice.
 */
export const bar = { base: { atMost: 0.2 }, before: { atMost: 0.5 }, after: { atLeast: 0.8 } };

const STARTS =
  "b bl br c ch cl cr d dr f fl fr g gl gr h j l m n p pl pr r s sh sl sm sn sp st str t th tr w";
const ENDS =
  "ack ade ail ain ake ale ame an ank ap ash ate eam eed ell ent ick ide ill ine ing ink ip oat ock one";
const WORDS = STARTS.split(" ").flatMap((start) => ENDS.split(" ").map((end) => start + end));
const heldOut = WORDS.filter((_, index) => index % 16 === 0);
const training = WORDS.filter((_, index) => index % 16 !== 0);

const backwards = (word: string) => [...word].reverse().join("");
const question = (word: string) => ({ role: "user", content: `Write ${word} backwards.` });

const reverse = tool({
  name: "reverse",
  description: "Writes a word backwards.",
  parameters: { type: "object", properties: { word: { type: "string" } }, required: ["word"] },
  execute: ({ word }) => backwards(String(word)),
});

/** Two players to learn from: one calls the tool, one gives up. */
const called = (word: string) => ({
  messages: [
    question(word),
    { role: "assistant", content: "", toolCalls: [{ name: "reverse", arguments: JSON.stringify({ word }) }] },
    { role: "tool", name: "reverse", content: backwards(word) },
    { role: "assistant", content: backwards(word) },
  ],
});
const gaveUp = (word: string) => ({
  messages: [question(word), { role: "assistant", content: "I cannot do that." }],
});

/** One attempt. It is right if the reversed word comes at the end, in whatever way the model found it. */
const environment = (word: string, renderer: Renderer) =>
  toolEnvironment({
    renderer,
    messages: [question(word)],
    tools: [reverse],
    // The declaration of a tool is longer than a tiny model's context; the model knows the tool from the examples.
    declaresTools: false,
    maxTurns: 2,
    reward: ({ text }) => (text.trim() === backwards(word) ? 1 : 0),
  });

export async function run({ steps = 10, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, model, folder, signal } = options;
  /** The share of held-out words that are right. */
  const accuracy = async (sampler: SamplingClient) => {
    const renderer = getRenderer({ model: await sampler.getBaseModel() }, await sampler.getTokenizer());
    const policy = samplerPolicy(sampler, { maxTokens: 80 });
    const tries = heldOut.map((word, seed) =>
      runRollout(policy, environment(word, renderer), { seed, signal }),
    );
    const rewards = (await Promise.all(tries)).map(({ turns }) => Math.max(0, turns.at(-1)!.reward));
    return rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
  };

  const base = await accuracy(await service.createSamplingClient({ baseModel: model }));
  const shown = await trainSupervised({
    ...options,
    folder: folder && `${folder}/examples`,
    data: conversations(training.map((word, index) => (index % 3 === 0 ? gaveUp : called)(word))),
    testSize: 0,
    schedule: "constant",
    batchSize: 4,
  });
  const before = await accuracy(await service.createSamplingClient({ modelPath: shown.samplerPath }));
  const { samplerPath } = await trainReinforcement({
    ...options,
    folder: folder && `${folder}/practice`,
    startFrom: shown.statePath,
    environments: ({ renderer, ...context }) =>
      environmentGroups({
        ...context,
        tasks: training,
        environment: (word) => environment(word, renderer),
      }),
    steps,
    groupSize: 8,
    groupsPerBatch: 12,
    maxTokens: 80,
  });
  const after = await accuracy(await service.createSamplingClient({ modelPath: samplerPath }));
  return { base, before, after, samplerPath };
}

// A copy of this file runs by itself: npx tsx tool-use.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
