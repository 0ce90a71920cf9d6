/**
 * An agent written with the Vercel AI SDK, trained on its own steps. It can ask a tool or guess, and at first
 * does each about half of the time. Right answers are rewarded, and only the tool knows them: after a few steps of
 * reinforcement learning the agent always asks.
 *
 * Needs version 6 or 7 of the AI SDK: `npm install ai`.
 * Runs on the built-in backend, or on the server in TINKER_BASE_URL (with TINKER_API_KEY if it needs one).
 */
import assert from "node:assert/strict";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import { type Datum, type SamplingClient, ServiceClient } from "tinkerts";
import { datumsFromSteps, tinkertsModel } from "tinkerts/ai-sdk";
import { datumFromExample } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";
import { getRenderer, type Message } from "tinkerts/renderers";

const baseModel = "tinkerts/nano"; // on another server, one of its models
const iterations = 4;
const agentsPerIteration = 16;
const question = "Who bakes bread?";

await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
await using service = new ServiceClient(backend);
const training = await service.createLoraTrainingClient({ baseModel, rank: 16, seed: 1 });

// A model of this size has to be shown what calls look like. It also learns a bad habit here: to guess.
const user: Message = { role: "user", content: question };
const lessons: Message[][] = [
  [
    user,
    { role: "assistant", content: "", toolCalls: [{ name: "ask", arguments: '{"about": "bread"}' }] },
    { role: "tool", content: "Ada" },
    { role: "assistant", content: "Ada does." },
  ],
  [user, { role: "assistant", content: "Bob does." }],
];
const renderer = getRenderer({ model: baseModel }, await training.getTokenizer());
const examples = lessons.map((messages) =>
  renderer.buildSupervisedExample(messages, "all_assistant_messages"),
);
const lessonData = examples.map((example) => datumFromExample(example)!);
for (let step = 0; step < 40; step += 1) {
  const pass = training.forwardBackward(lessonData, "cross_entropy");
  await Promise.all([pass, training.optimStep({ learningRate: 4e-3 })]);
}

/** The agent: the model may call the tool, and answers with what it hears. */
function runAgent(sampler: SamplingClient, seed: number) {
  return generateText({
    // It knows its tool by heart; declared, the tool would take most of this model's short context.
    model: tinkertsModel(sampler, { declareTools: false }),
    prompt: question,
    tools: {
      ask: tool({
        description: "Asks the village",
        inputSchema: jsonSchema<{ about: string }>({
          type: "object",
          properties: { about: { type: "string" } },
        }),
        execute: ({ about }) => (about === "bread" ? "Ada" : "unknown"),
      }),
    },
    stopWhen: stepCountIs(3),
    maxOutputTokens: 60,
    seed,
  });
}

const rewardsByIteration: number[] = [];
for (let iteration = 0; iteration <= iterations; iteration += 1) {
  const sampler = await training.saveWeightsAndGetSamplingClient();
  const seeds = Array.from(
    { length: agentsPerIteration },
    (_, index) => iteration * agentsPerIteration + index,
  );
  const results = await Promise.all(seeds.map((seed) => runAgent(sampler, seed)));
  const rewards: number[] = results.map(({ text }) => (text === "Ada does." ? 1 : 0));
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
  rewardsByIteration.push(mean);
  const asking = results.filter(({ steps }) => steps.length > 1).length;
  const share = `${(100 * mean).toFixed(0)}%`;
  console.log(`after ${iteration} steps: ${asking} of ${results.length} agents ask, ${share} are right`);
  if (iteration === iterations) break;

  // Each agent's steps are one datum: what it sampled counts, what the tool said does not.
  const data: Datum[] = results.flatMap((result, index) =>
    datumsFromSteps(result, { advantage: rewards[index]! - mean }),
  );
  const pass = training.forwardBackward(data, "importance_sampling");
  await Promise.all([pass, training.optimStep({ learningRate: 1e-3 })]);
}

assert.ok(rewardsByIteration[0]! < 0.8, "it knew before it was trained");
assert.ok(rewardsByIteration.at(-1)! > 0.9, "it did not learn to ask");
