/** An agent that is a script of its own (openai-agent.mjs), trained as it is: it learns that calling its tool pays. */
import { fileURLToPath } from "node:url";
import { type SamplingClient, ServiceClient } from "tinkerts";
import {
  conversations,
  environmentEvaluator,
  type RunOptions,
  trainReinforcement,
  trainSupervised,
} from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";
import { getRenderer, type Renderer } from "tinkerts/renderers";

/** Results that it must reach with tinkerts/nano: held-out words that the agent reverses, before and after practice. */
export const bar = { before: { atMost: 0.3 }, after: { atLeast: 0.9 } };

/** The agent is a script with OpenAI's client, which knows nothing of training: it runs once for each episode. */
const agent = {
  command: process.execPath,
  args: [
    fileURLToPath(new URL("src/cli/recipes/openai-agent.mjs", import.meta.resolve("tinkerts/package.json"))),
  ],
};

const STARTS =
  "b bl br c ch cl cr d dr f fl fr g gl gr h j l m n p pl pr r s sh sl sm sn sp st str t th tr w";
const ENDS =
  "ack ade ail ain ake ale ame an ank ap ash ate eam eed ell ent ick ide ill ine ing ink ip oat ock one";
const WORDS = STARTS.split(" ").flatMap((start) => ENDS.split(" ").map((end) => start + end));
const heldOut = WORDS.filter((_, index) => index % 16 === 0);
const training = WORDS.filter((_, index) => index % 16 !== 0);
const backwards = (word: string) => [...word].reverse().join("");

/**
 * What the model has seen: where a question names the tool, it was called; where it does not, there was mostly an
 * excuse.
 */
const question = (word: string, more = "") => ({ role: "user", content: `Write ${word} backwards.${more}` });
const called = (word: string, asked = question(word)) => ({
  messages: [
    asked,
    { role: "assistant", content: "", toolCalls: [{ name: "reverse", arguments: JSON.stringify({ word }) }] },
    { role: "tool", name: "reverse", content: backwards(word) },
    { role: "assistant", content: backwards(word) },
  ],
});
const told = (word: string) => called(word, question(word, " Use your tool."));
const gaveUp = (word: string) => ({
  messages: [question(word), { role: "assistant", content: "I cannot do that." }],
});
const seen = [told, gaveUp, told, called, told, gaveUp, told, told, gaveUp, told];

/** A tool's declaration is longer than a tiny model's context; this one knows the tool from the examples. */
async function shortRenderer({ service, model }: Pick<RunOptions, "service" | "model">): Promise<Renderer> {
  const renderer = getRenderer({ model }, await service.getTokenizer(model));
  const declareTools: Renderer["declareTools"] = (_, system) =>
    system ? [{ role: "system", content: system }] : [];
  return Object.assign(renderer, { declareTools });
}

export async function run({ steps = 12, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, folder, signal } = options;
  const shown = await trainSupervised({
    ...options,
    folder: folder && `${folder}/examples`,
    data: conversations(training.map((word, index) => seen[index % seen.length]!(word))),
    testSize: 0,
    schedule: "constant",
    batchSize: 4,
    epochs: 2,
  });
  const episodes = {
    agent,
    reward: ({ problem, output }: { problem: string; output: unknown }) =>
      String(output).trim() === backwards(problem) ? 1 : 0,
    renderer: await shortRenderer(options),
    maxTokens: 80,
  };
  const evaluator = environmentEvaluator<string>({ ...episodes, problems: heldOut, numGroups: 24 });
  const accuracy = async (sampler: SamplingClient) => {
    const metrics = await evaluator.evaluate({ sampler, service, step: 0, signal });
    return metrics["test/env/all/reward/total"]!;
  };
  const before = await accuracy(await service.createSamplingClient({ modelPath: shown.samplerPath }));
  const { samplerPath } = await trainReinforcement<string>({
    ...options,
    ...episodes,
    folder: folder && `${folder}/practice`,
    startFrom: shown.statePath,
    problems: training,
    steps,
    groupSize: 6,
    groupsPerBatch: 8,
    schedule: "linear",
  });
  const after = await accuracy(await service.createSamplingClient({ modelPath: samplerPath }));
  await evaluator.close?.();
  return { before, after, samplerPath };
}

// A copy of this file runs by itself: npx tsx agent-script.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
