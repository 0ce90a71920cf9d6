/**
 * RLHF in three stages: a model learns to answer, a preference model learns from comparisons, and its judgement is the
 * reward.
 */
import { type SamplingClient, ServiceClient } from "tinkerts";
import {
  chat,
  comparisons,
  conversations,
  preferenceModel,
  type RunOptions,
  tournament,
  trainPreferenceModel,
  trainReinforcement,
  trainSupervised,
} from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";

/** Results that it must reach with tinkerts/nano: comparisons judged correctly, and the share of friendly answers. */
export const bar = {
  judgedRight: { atLeast: 0.9 },
  friendlyBefore: { atMost: 0.65 },
  friendlyAfter: { atLeast: 0.9 },
};

const THINGS =
  "ball book kite hat boat cake drum lamp box bell map cup flower stone shell pen bed spoon broom car phone brush shovel clock needle ruler chair coat shirt bus";
const things = THINGS.split(" ");
/** Held out from the comparisons, to see whether the preference model generalizes. */
const heldOut = things.filter((_, index) => index % 5 === 0);
const compared = things.filter((_, index) => index % 5 !== 0);

const question = (thing: string) => `May I have the ${thing}?`;
const friendly = (thing: string) => `Yes, my friend! The ${thing} is for you.`;
const cool = (thing: string) => `The ${thing} is over there.`;
const isFriendly = (answer: string) => answer.includes("my friend");

export async function run({ steps = 20, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, folder, signal } = options;
  const sampler = (modelPath: string) => service.createSamplingClient({ modelPath });
  /** The share of friendly answers. */
  const friendliness = async (model: SamplingClient) => {
    const answers = things.map((thing, seed) =>
      chat(model, [{ role: "user", content: question(thing) }], {
        maxTokens: 40,
        numSamples: 4,
        seed,
        signal,
      }),
    );
    const texts = (await Promise.all(answers)).flatMap(({ samples }) => samples.map(({ text }) => text));
    return texts.filter(isFriendly).length / texts.length;
  };

  // 1. The model learns to answer, friendly half of the time.
  const answering = await trainSupervised({
    ...options,
    folder: folder && `${folder}/answers`,
    data: conversations(
      things.flatMap((thing) =>
        [friendly, cool].map((answer) => ({
          messages: [
            { role: "user", content: question(thing) },
            { role: "assistant", content: answer(thing) },
          ],
        })),
      ),
    ),
    testSize: 0,
    batchSize: 10,
    epochs: 8,
  });
  const friendlyBefore = await friendliness(await sampler(answering.samplerPath));

  // 2. Another model learns which answers people prefer. It is never given the reason, friendliness.
  const pairOf = (thing: string) => ({
    prompt: question(thing),
    chosen: friendly(thing),
    rejected: cool(thing),
  });
  const judging = await trainPreferenceModel({
    ...options,
    folder: folder && `${folder}/preferences`,
    data: comparisons(compared.map(pairOf)),
    testData: comparisons(heldOut.map(pairOf)),
    batchSize: 8,
    epochs: 10,
  });
  const judge = preferenceModel(await sampler(judging.samplerPath));

  // 3. Answers to the same question meet in a tournament that the preference model judges.
  const { samplerPath } = await trainReinforcement({
    ...options,
    folder: folder && `${folder}/reinforcement`,
    startFrom: answering.statePath,
    environments: (context) =>
      tournament({
        ...context,
        prompts: things.map((thing) => ({ prompt: question(thing) })),
        compare: judge,
      }),
    steps,
    groupSize: 4,
    groupsPerBatch: 10,
    maxTokens: 40,
  });
  const friendlyAfter = await friendliness(await sampler(samplerPath));
  return {
    judgedRight: Number(judging.metrics["test/accuracy"]),
    friendlyBefore,
    friendlyAfter,
    samplerPath,
  };
}

// A copy of this file runs by itself: npx tsx rlhf.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
