/**
 * Direct preference optimization (DPO) in a loop of your own. `trainDpo` of `tinkerts/cookbook` adds files,
 * checkpoints and evaluation.
 *
 * The model that comes with the package has a bad habit: it forgets the carry (47+38=75). Here it is
 * trained only on pairs of answers, in which the right one is preferred. Sums that are not trained on show what it
 * learned: which answer of a pair the model finds likelier, and what it answers itself.
 *
 * Runs on the built-in backend, or on the server in TINKER_BASE_URL (with TINKER_API_KEY if it needs one).
 */
import assert from "node:assert/strict";
import { type Datum, datumFromAnswer, type SamplingClient, ServiceClient } from "tinkerts";
import { dpoLoss, withReference } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";

const baseModel = "tinkerts/nano"; // on another server, one of its models
const beta = 2; // the higher, the nearer the model stays to where it began
const learningRate = 5e-4;
const steps = 24;
const pairsPerStep = 16;

await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
await using service = new ServiceClient(backend);
const training = await service.createLoraTrainingClient({ baseModel, rank: 16, seed: 1 });
const tokenizer = await training.getTokenizer();

interface Pair {
  readonly question: string;
  readonly chosen: string;
  readonly rejected: string;
}

// Sums with a carry, in an order that looks random and is the same on every run.
const pairs: Pair[] = [];
for (let index = 0; index < 10_000; index += 1) {
  const a = (index * 37) % 100;
  const b = Math.floor((index * 37) / 100) % 100;
  const withoutCarry = 10 * (Math.floor(a / 10) + Math.floor(b / 10)) + ((a + b) % 10);
  if (withoutCarry === a + b) continue;
  pairs.push({ question: `${a}+${b}=`, chosen: `${a + b}\n`, rejected: `${withoutCarry}\n` });
}
const heldOut = pairs.slice(0, 120);
const trained = pairs.slice(120, 120 + steps * pairsPerStep);

/** A pair as two datums, the chosen answer first. Only the answer's tokens have a weight, not the question's. */
function datumsOf({ question, chosen, rejected }: Pair): Datum[] {
  const prompt = tokenizer.encode(question);
  return [chosen, rejected].map((answer) => datumFromAnswer(prompt, tokenizer.encode(answer)));
}

/** Asks about sums that are not trained on. */
async function examine(when: string, sampler: SamplingClient) {
  const data = heldOut.flatMap(datumsOf);
  const { lossFnOutputs } = await training.forward(data, "cross_entropy");
  // The logprob of each whole answer; behind each right one stands the wrong one.
  const scores = data.map(({ lossFnInputs }, index) => {
    const weights = lossFnInputs["weights"]!.toArray();
    const logprobs = Array.from(lossFnOutputs[index]!.logprobs.toArray());
    return logprobs.reduce((sum, logprob, token) => sum + logprob * weights[token]!, 0);
  });
  const margins = heldOut.map((_, pair) => scores[2 * pair]! - scores[2 * pair + 1]!);
  const margin = margins.reduce((sum, each) => sum + each, 0) / margins.length;
  const samplingParams = { maxTokens: 5, temperature: 0, stop: "\n" };
  const answers = await Promise.all(
    heldOut.map(async ({ question }) => {
      const { sequences } = await sampler.sample({ prompt: tokenizer.encode(question), samplingParams });
      return tokenizer.decode(sequences[0]!.tokens);
    }),
  );
  const preferred = margins.filter((each) => each > 0).length / heldOut.length;
  const right = heldOut.filter(({ chosen }, index) => chosen === answers[index]).length / heldOut.length;
  const percent = (share: number) => `${(100 * share).toFixed(0)}%`;
  console.log(
    `${when}: ${percent(preferred)} of ${heldOut.length} held-out pairs preferred as they should be ` +
      `(margin ${margin.toFixed(2)}); ${percent(right)} of the sums answered right`,
  );
  for (const index of [0, 1, 2]) console.log(`  ${heldOut[index]!.question}${answers[index]!.trimEnd()}`);
  return { preferred, right };
}

// The reference is the model before training: its logprobs travel with the data, and never to the server.
const reference = await service.createSamplingClient({ baseModel });
const before = await examine("before", reference);
const data = await withReference(trained.flatMap(datumsOf), reference);
const loss = dpoLoss({ beta });

for (let step = 0; step < steps; step += 1) {
  const batch = data.slice(2 * pairsPerStep * step, 2 * pairsPerStep * (step + 1));
  const pass = training.forwardBackwardCustom(batch, loss);
  const update = training.optimStep({ learningRate });
  const { metrics } = await pass;
  await update;
  if (step % 6 === 0 || step === steps - 1) {
    const { dpo_loss, margin, accuracy } = metrics as Record<"dpo_loss" | "margin" | "accuracy", number>;
    console.log(
      `step ${step + 1}: loss ${dpo_loss.toFixed(3)}, margin ${margin.toFixed(2)}, accuracy ${accuracy.toFixed(2)}`,
    );
  }
}

const after = await examine("after", await training.saveWeightsAndGetSamplingClient());
assert.ok(after.preferred > 0.9 && before.preferred < 0.5, "it did not learn the preference");
assert.ok(after.right > before.right + 0.3, "it prefers the right answers but does not give them");
