/**
 * Reinforcement learning with your own environment and loop. The environment is a bill: the model is asked for the sum
 * so far after each item. A right answer is worth a point; the first wrong one ends the episode. The loop is
 * `trainReinforcement` in its simplest form: a sampler of the current weights, groups of episodes, advantages, data, a
 * step.
 *
 * Runs on the built-in backend, or on the server in TINKER_BASE_URL (with TINKER_API_KEY if it needs one).
 */
import assert from "node:assert/strict";
import { type SamplingClient, ServiceClient } from "tinkerts";
import {
  assembleData,
  dropConstantGroups,
  environmentGroups,
  groupAdvantages,
  klSampleTrain,
  type MessageEnvironment,
  messageEnvironment,
  policyLoss,
  runRolloutGroup,
  samplerPolicy,
  trajectoryMetrics,
} from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";
import { getRenderer, textOf } from "tinkerts/renderers";

const baseModel = "tinkerts/nano"; // on another server, one of its models
const steps = 8;
const groupsPerStep = 12;
const groupSize = 6;

/** The first price, and those that are added to it. */
type Prices = readonly [number, ...number[]];

/** An episode: one bill. It knows nothing of tokens; the conversation is kept for it. */
function bill([first, ...others]: Prices): MessageEnvironment {
  let total = first;
  let turn = 0;
  const question = () => ({ role: "user", content: `What is ${total} + ${others[turn]}?` });
  return {
    start: () => [question()],
    step: ({ message }) => {
      total += others[turn]!;
      turn += 1;
      if (textOf(message).trim() !== String(total)) return { reward: 0, isDone: true, end: "wrong" };
      if (turn === others.length) return { reward: 1, isDone: true, end: "completed" };
      return { reward: 1, isDone: false, messages: [question()] };
    },
  };
}

/** Bills that add up to less than 100, always the same ones. */
function bills(count: number, seed: number): Prices[] {
  const price = (index: number, place: number) =>
    5 + ((seed * 101 + index * 17 + place * 11 + index * place * 7) % 28);
  return Array.from({ length: count }, (_, index) => [price(index, 0), price(index, 1), price(index, 2)]);
}

await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
await using service = new ServiceClient(backend);
const training = await service.createLoraTrainingClient({ baseModel, rank: 16, seed: 1 });
const renderer = getRenderer({ model: baseModel }, await training.getTokenizer());
const groupsOf = (tasks: Prices[], tries: number) =>
  environmentGroups({
    tasks,
    groupSize: tries,
    environment: (prices) => messageEnvironment({ environment: bill(prices), renderer }),
  });

/** Bills that were added up to the end, each once, with the likeliest answers. */
async function measure(sampler: SamplingClient): Promise<number> {
  const tasks = bills(40, 2);
  const source = groupsOf(tasks, 1);
  const policy = samplerPolicy(sampler, { maxTokens: 8, temperature: 0 });
  const played = tasks.map(async (_, index) => runRolloutGroup((await source.group(index))!, policy));
  return trajectoryMetrics(await Promise.all(played))["env/all/stop/completed"] ?? 0;
}

const percent = (share: number) => `${(100 * share).toFixed(0)}%`;
let sampler = await training.saveWeightsAndGetSamplingClient();
const before = await measure(sampler);
console.log(`${percent(before)} of the bills are right to the end`);

const source = groupsOf(bills(steps * groupsPerStep, 1), groupSize);
const loss = policyLoss("importance_sampling");
for (let step = 0; step < steps; step += 1) {
  // Several tries at each bill, all at once. With the same seed they are the same whenever this program runs.
  const policy = samplerPolicy(sampler, { maxTokens: 8 });
  const numbers = Array.from({ length: groupsPerStep }, (_, place) => step * groupsPerStep + place);
  const groups = await Promise.all(
    numbers.map(async (number) =>
      runRolloutGroup((await source.group(number))!, policy, { seed: 3000 + number }),
    ),
  );

  // Only tries that differ teach something: what did better than the rest of its group becomes likelier.
  const telling = dropConstantGroups(groups);
  const data = assembleData(
    telling,
    telling.map((group) => groupAdvantages(group)),
  );
  const pass = loss.forwardBackward(training, data);
  const update = training.optimStep({ learningRate: 2e-3 });
  const [{ lossFnOutputs }] = await Promise.all([pass, update]);
  sampler = await training.saveWeightsAndGetSamplingClient();

  const metrics = trajectoryMetrics(groups);
  const logprobs = lossFnOutputs.map((output) => output["logprobs"]!.data);
  const distance = klSampleTrain(data, logprobs)["optim/kl_sample_train_v2"]!;
  const reward = metrics["env/all/reward/total"]!;
  console.log(
    `step ${step + 1}: ${data.length} episodes, reward ${reward.toFixed(2)}, sampler to trainer ${distance}`,
  );
  // However many turns an episode has, it is one datum: prompts go on from the very tokens that were sampled.
  assert.equal(data.length, telling.length * groupSize);
  // So the trainer sees exactly what the sampler saw. On the built-in backend they agree to the last bit.
  assert.ok(distance < 0.01, "what is trained on is not what was sampled");
}

const after = await measure(sampler);
console.log(`${percent(after)} of the bills are right to the end`);
assert.ok(after > before + 0.1, "it did not learn to add up bills");
