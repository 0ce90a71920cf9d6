/**
 * Prompt distillation: a model that reads instructions and examples answers, and a model learns to answer like that
 * without them.
 */
import { type SamplingClient, ServiceClient } from "tinkerts";
import { evaluate, exactMatch, type RunOptions, trainPromptDistillation } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";
import { type Message, textOf } from "tinkerts/renderers";

/** Results that it must reach with tinkerts/nano. The teacher itself is right for about 98 words of 100. */
export const bar = { before: { atMost: 0.05 }, after: { atLeast: 0.95 } };

const STARTS =
  "b bl br c ch cl cr d dr f fl fr g gl gr h j l m n p pl pr r s sh sl sm sn sp st str t th tr w";
const ENDS =
  "ack ade ail ain ake ale ame an ank ap ash ate eam eed ell ent ick ide ill ine ing ink ip oat ock one";
const WORDS = STARTS.split(" ").flatMap((start) => ENDS.split(" ").map((end) => start + end));

const spelt = (word: string) => [...word].join(" ");

/** The teacher's prompt for a word. */
function instructions(messages: readonly Message[]): readonly Message[] {
  const ask = (word: string) => ({ role: "user", content: `Spell ${word}.` });
  const examples = ["green", "house", "pilot"];
  return [
    { role: "system", content: "You are a helpful assistant." },
    ...examples.flatMap((word) => [ask(word), { role: "assistant", content: spelt(word) }]),
    ask(textOf(messages.at(-1)!)),
  ];
}

export async function run({ steps = 60, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, model, signal } = options;
  // Every ninth word is kept for the test.
  const tasks = WORDS.filter((_, index) => index % 9 === 0).map((word) => ({
    prompt: word,
    answer: spelt(word),
  }));
  const accuracy = async (sampler: SamplingClient) =>
    (await evaluate({ sampler, tasks, grade: exactMatch(), temperature: 0, maxTokens: 24, signal })).score;

  const before = await accuracy(await service.createSamplingClient({ baseModel: model }));
  const { samplerPath } = await trainPromptDistillation({
    ...options,
    questions: WORDS.filter((_, index) => index % 9 !== 0),
    instructions,
    answering: { maxTokens: 24 },
    batchSize: 16,
    testSize: 0,
    epochs: Math.ceil((16 * steps) / 700),
    maxSteps: steps,
  });
  const after = await accuracy(await service.createSamplingClient({ modelPath: samplerPath }));
  return { before, after, samplerPath };
}

// A copy of this file runs by itself: npx tsx prompt-distillation.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
