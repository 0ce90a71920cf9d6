import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { datumFromExample } from "../../src/cookbook/index.js";
import { ServiceClient } from "../../src/index.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { getRenderer, type Message } from "../../src/renderers/index.js";
import { silent } from "./raw-client.js";

const ADD = { name: "add", description: "", parameters: { type: "object", properties: {} } };
const QUESTION = "What is 2 + 3?";

let folder: string;
let backend: LocalBackend;
beforeAll(async () => {
  // One declared tool takes most of nano's own context.
  folder = await mkdtemp(join(tmpdir(), "tinkerts-tools-"));
  await cp(defaultModel.path, folder, { recursive: true });
  const config = JSON.parse(await readFile(join(folder, "config.json"), "utf8")) as object;
  await writeFile(join(folder, "config.json"), JSON.stringify({ ...config, max_position_embeddings: 1024 }));
  const models = [{ name: defaultModel.name, path: folder }];
  const engine = await startEngine({ models, threads: 2, inThread: true });
  backend = await startLocalBackend({ engine, listen: false, logger: silent });
});
afterAll(async () => {
  await backend.close();
  await rm(folder, { recursive: true });
});

it("a model that was taught to call a function calls it for the openai package", async () => {
  await using service = new ServiceClient({ ...backend });
  const training = await service.createLoraTrainingClient({
    baseModel: defaultModel.name,
    rank: 16,
    seed: 1,
  });
  const renderer = getRenderer("qwen3_instruct", await training.getTokenizer());
  const taught: Message[] = [
    ...renderer.declareTools([ADD]),
    { role: "user", content: QUESTION },
    { role: "assistant", content: "", toolCalls: [{ name: "add", arguments: '{"a": 2, "b": 3}' }] },
    { role: "tool", content: "5" },
    { role: "assistant", content: "It is 5." },
  ];
  const data = renderer
    .buildSupervisedExamples(taught, "all_assistant_messages")
    .map((example) => datumFromExample(example)!);
  let loss = Number.POSITIVE_INFINITY;
  for (let step = 0; step < 60 && loss > 0.1; step += 1) {
    const pass = training.forwardBackward(data, "cross_entropy");
    const update = training.optimStep({ learningRate: 4e-3 });
    loss = (await pass).metrics["loss:sum"]!;
    await update;
  }
  const { path } = await training.saveWeightsForSampler("calls");

  const client = new OpenAI({ baseURL: `${backend.baseURL}/v1`, apiKey: "none", fetch: backend.fetch });
  expect((await client.models.list()).data[0]!.id).toBe(path);
  const called: unknown[] = [];
  const runner = client.chat.completions.runTools({
    model: path,
    temperature: 0,
    max_tokens: 80,
    messages: [{ role: "user", content: QUESTION }],
    tools: [
      {
        type: "function",
        function: {
          ...ADD,
          parse: (text: string) => JSON.parse(text) as { a: number; b: number },
          function: (given: { a: number; b: number }) => {
            called.push(given);
            return String(given.a + given.b);
          },
        },
      },
    ],
  });
  expect(await runner.finalContent()).toBe("It is 5.");
  expect(called).toEqual([{ a: 2, b: 3 }]);
});
