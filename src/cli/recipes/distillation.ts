/** On-policy distillation: a student answers, and a teacher that adds well scores each token of the answer. */
import { type SamplingClient, ServiceClient } from "tinkerts";
import {
  conversations,
  evaluate,
  exactMatch,
  type RunOptions,
  trainOnPolicyDistillation,
  trainSupervised,
} from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";

/** Results that it must reach with tinkerts/nano. */
export const bar = { before: { atMost: 0.7 }, teacher: { atLeast: 0.95 }, after: { atLeast: 0.9 } };

/** All sums of two numbers below 100; one in seven, the same in both orders, is kept for the test. */
function sums() {
  const [training, heldOut]: { prompt: string; answer: string }[][] = [[], []];
  for (let a = 0; a < 100; a += 1) {
    for (let b = 0; b < 100; b += 1) {
      const sum = { prompt: `What is ${a} + ${b}?`, answer: String(a + b) };
      (((a + 1) * (b + 1)) % 7 === 1 ? heldOut : training)!.push(sum);
    }
  }
  return { training: training!, heldOut: heldOut!.filter((_, index) => index % 5 === 0) };
}

export async function run({ steps = 40, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, model, folder, signal } = options;
  const { training, heldOut: tasks } = sums();
  const accuracy = async (sampler: SamplingClient) =>
    (await evaluate({ sampler, tasks, grade: exactMatch(), temperature: 0, maxTokens: 16, signal })).score;

  // The teacher: a checkpoint trained on right answers. Any checkpoint with the student's tokenizer will do.
  const taught = await trainSupervised({
    ...options,
    folder: folder && `${folder}/teacher`,
    data: conversations(
      training.map(({ prompt, answer }) => ({
        messages: [
          { role: "user", content: prompt },
          { role: "assistant", content: answer },
        ],
      })),
    ),
    batchSize: 64,
    testSize: 0,
    maxSteps: 60,
  });
  const teacher = await accuracy(await service.createSamplingClient({ modelPath: taught.samplerPath }));

  // The student never sees a right answer: it samples its own, and the teacher scores them.
  const before = await accuracy(await service.createSamplingClient({ baseModel: model }));
  const { samplerPath } = await trainOnPolicyDistillation({
    ...options,
    folder: folder && `${folder}/student`,
    teacher: taught.samplerPath,
    prompts: training.map(({ prompt }) => ({ prompt })),
    steps,
    groupsPerBatch: 32,
    groupSize: 4,
    maxTokens: 16,
  });
  const after = await accuracy(await service.createSamplingClient({ modelPath: samplerPath }));
  return { teacher, before, after, samplerPath };
}

// A copy of this file runs by itself: npx tsx distillation.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
