/**
 * Supervised chat: a model learns Pig Latin ("stick" becomes "ick-stay") from conversations, and translates new words.
 */
import { type SamplingClient, ServiceClient } from "tinkerts";
import { conversations, evaluate, exactMatch, type RunOptions, trainSupervised } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";

/** Results that it must reach with tinkerts/nano. */
export const bar = { before: { atMost: 0.05 }, after: { atLeast: 0.95 } };

const STARTS =
  "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr r s sh sl sm sn sp st str t th tr v w";
const ENDS =
  "ack ade ail ain ake ale ame an ank ap ash ate eam eed ell ent ick ide ight ill ine ing ink int ip oat ock oil one ook op ore ot ound own uck ug ump unk ush";

/** Short words, many of them English, each with its translation. Every thirteenth is kept for the test. */
function words() {
  const all = STARTS.split(" ").flatMap((start) =>
    ENDS.split(" ").map((end) => ({
      prompt: `Say ${start}${end} in Pig Latin.`,
      answer: `${end}-${start}ay`,
    })),
  );
  return {
    training: all.filter((_, index) => index % 13 !== 0),
    heldOut: all.filter((_, index) => index % 13 === 0),
  };
}

export async function run({ steps = 90, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, model, signal } = options;
  const { training, heldOut: tasks } = words();
  const accuracy = async (sampler: SamplingClient) =>
    (await evaluate({ sampler, tasks, grade: exactMatch(), temperature: 0, maxTokens: 24, signal })).score;

  const before = await accuracy(await service.createSamplingClient({ baseModel: model }));
  const { samplerPath } = await trainSupervised({
    ...options,
    data: conversations(
      training.map(({ prompt, answer }) => ({
        messages: [
          { role: "user", content: prompt },
          { role: "assistant", content: answer },
        ],
      })),
    ),
    epochs: Math.ceil((16 * steps) / training.length),
    maxSteps: steps,
    batchSize: 16,
    testSize: 0,
  });
  const after = await accuracy(await service.createSamplingClient({ modelPath: samplerPath }));
  return { before, after, samplerPath };
}

// A copy of this file runs by itself: npx tsx word-game.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
