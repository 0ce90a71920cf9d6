import { expect, it } from "vitest";
import { trajectoryData } from "../../src/cookbook/reinforcement/assemble.js";
import { startGateway } from "../../src/gateway/index.js";
import { ServiceClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";

interface Answer {
  readonly choices: readonly {
    readonly message: {
      readonly content: string | null;
      readonly tool_calls?: readonly { readonly id: string }[];
    };
  }[];
}

const tools = [
  {
    type: "function",
    function: { name: "add", description: "Adds.", parameters: { type: "object", properties: {} } },
  },
];

it("logprobs that are computed again are those that were sampled, over turns, forks and calls", async () => {
  await using backend = await startLocalBackend({ listen: false, logger: silent });
  const service = new ServiceClient({ ...backend, logLevel: "off" });
  const model = "tinkerts/nano";
  const training = await service.createLoraTrainingClient({ baseModel: model, rank: 4, seed: 1 });
  await using gateway = await startGateway({
    service,
    models: { [model]: model },
    listen: false,
    logger: silent,
  });
  const session = gateway.session();
  const ask = async (messages: readonly object[], isForced = false) => {
    const body = {
      ...{ model: "any", messages, max_tokens: 24, temperature: 1 },
      ...(isForced && { tools, tool_choice: "required" }),
    };
    const answer = await gateway.fetch(`${session.baseURL}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    expect(answer.status).toBe(200);
    return ((await answer.json()) as Answer).choices[0]!.message;
  };
  const user = (content: string) => ({ role: "user", content });
  let history: object[] = [user("What is 12 + 30?")];
  for (const next of ["And 3 more?", "And 7 less?", "Thank you."])
    history = [...history, await ask(history), user(next)];
  await ask(history);
  await ask([user("What is 12 + 31?"), ...history.slice(1)]);
  await ask([user("Add 1 and 2.")], true);
  await service.createSamplingClient({ baseModel: model });
  const { threads, counts } = await session.end();
  const turns = threads.flatMap((thread) =>
    thread.turns.map(({ prompt, tokens, logprobs, stopReason }) => ({
      ...{ observation: prompt, action: { tokens, logprobs, stopReason } },
      ...{ reward: 0, isDone: false, isMasked: false, metrics: {}, logs: {} },
    })),
  );
  expect(turns).toHaveLength(6);
  const data = trajectoryData({ turns, finalObservation: turns[0]!.observation }, 1);
  const { lossFnOutputs } = await training.forward(
    data.map(({ input, targetTokens, mask }) => ({
      modelInput: input,
      lossFnInputs: { targetTokens, weights: mask },
    })),
    "cross_entropy",
  );
  let trained = 0;
  for (const [at, { logprobs, mask }] of data.entries()) {
    const computed = lossFnOutputs[at]!.logprobs.toArray();
    for (const [place, isTrained] of mask.entries()) {
      if (isTrained === 0) continue;
      trained += 1;
      expect(computed[place]).toBeCloseTo(logprobs[place]!, 4);
    }
  }
  expect(trained).toBe(counts.sampledTokens);
});
