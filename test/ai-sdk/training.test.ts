import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { datumsFromSteps, readAnswerMetadata, tinkertsModel } from "../../src/ai-sdk/index.js";
import { datumFromExample } from "../../src/cookbook/data/index.js";
import { type SamplingClient, ServiceClient } from "../../src/index.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { getRenderer, type Message, type Renderer } from "../../src/renderers/index.js";
import { MAJORS } from "./majors.js";

const QUESTION = "Who makes bread?";
const user = (content: string): Message => ({ role: "user", content });
const said = (content: string): Message => ({ role: "assistant", content });
const SCHEMA = z.object({ color: z.string() });
const JSON_INSTRUCTION =
  'Answer with JSON and nothing else. It must fit this JSON schema:\n{"type":"object","properties":{"color":' +
  '{"type":"string"}},"required":["color"],"additionalProperties":false}';

/** What the model is taught: to ask who it is before it says it, in one of two ways, and to answer in JSON. */
const LESSONS: readonly (readonly Message[])[] = [
  ...["does", "and no one else"].map((ending): Message[] => [
    user(QUESTION),
    { role: "assistant", content: "", toolCalls: [{ name: "ask", arguments: '{"of": "bread"}' }] },
    { role: "tool", content: "Ada" },
    said(`Ada ${ending}.`),
  ]),
  [{ role: "system", content: JSON_INSTRUCTION }, user("The sky?"), said('{"color": "blue"}')],
];

let backend: LocalBackend;
let service: ServiceClient;
/** The path of what the lessons made. */
let taught: string;
let sampler: SamplingClient;
let renderer: Renderer;
beforeAll(async () => {
  backend = await startLocalBackend({ threads: 1, listen: false });
  service = new ServiceClient(backend);
  const training = await service.createLoraTrainingClient({ baseModel: "tinkerts/nano", rank: 16, seed: 1 });
  renderer = getRenderer("qwen3_instruct", await training.getTokenizer());
  const lessons = LESSONS.map(
    (messages) => datumFromExample(renderer.buildSupervisedExample(messages, "all_assistant_messages"))!,
  );
  for (let step = 0; step < 25; step++) {
    const pass = training.forwardBackward(lessons, "cross_entropy");
    const update = training.optimStep({ learningRate: 4e-3 });
    await Promise.all([pass, update]);
  }
  taught = (await training.saveState("taught")).path;
  sampler = await training.saveWeightsAndGetSamplingClient();
});
afterAll(async () => {
  await service.close();
  await backend.close();
});

describe.each(MAJORS)("an agent of %s", (_, { generateText, streamText, stepCountIs, tool, Output }) => {
  const ask = tool({
    description: "Who makes something",
    inputSchema: z.object({ of: z.string() }),
    execute: ({ of }) => (of === "bread" ? "Ada" : "nobody"),
  });
  const agent = (from = sampler) => ({
    model: tinkertsModel(from, { declareTools: false }),
    tools: { ask },
    stopWhen: stepCountIs(3),
  });

  it("calls a tool and answers with its result", async () => {
    const result = await generateText({ ...agent(), prompt: QUESTION, temperature: 0 });
    expect(result.steps.map(({ finishReason }) => finishReason)).toEqual(["tool-calls", "stop"]);
    expect(result.steps[0]!.toolResults).toMatchObject([{ input: { of: "bread" }, output: "Ada" }]);
    expect(result.text).toMatch(/^Ada (does|and no one else)\.$/);
    const streamed = streamText({ ...agent(), prompt: QUESTION, temperature: 0 });
    expect(await streamed.text).toBe(result.text);
    expect(datumsFromSteps(await streamed.steps, { advantage: 1 })).toEqual(
      datumsFromSteps(result, { advantage: 1 }),
    );
  });

  it("ends before a stop text", async () => {
    const ended = await generateText({
      ...agent(),
      prompt: QUESTION,
      temperature: 0,
      stopSequences: [" does", " and"],
    });
    expect(ended).toMatchObject({ text: "Ada", finishReason: "stop" });
  });

  it("answers in JSON, with a warning that nothing forces it to", async () => {
    const { output, warnings } = await generateText({
      model: tinkertsModel(sampler),
      prompt: "The sky?",
      output: Output.object({ schema: SCHEMA }),
      temperature: 0,
    });
    expect(output).toEqual({ color: "blue" });
    expect(warnings).toEqual([expect.objectContaining({ type: "unsupported", feature: "responseFormat" })]);
  });

  it("yields one datum with what was sampled, exactly, and learns from its reward", async () => {
    const student = await service.createTrainingClientFromState(taught);
    const first = await student.saveWeightsAndGetSamplingClient();
    const results = await Promise.all(
      Array.from({ length: 8 }, (_unused, seed) => generateText({ ...agent(first), prompt: QUESTION, seed })),
    );
    const rewards: number[] = results.map(({ text }) => (text === "Ada does." ? 1 : 0));
    const expected = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
    expect(expected).toBeGreaterThan(0);
    expect(expected).toBeLessThan(1);
    const data = results.flatMap((result, index) =>
      datumsFromSteps(result, { advantage: rewards[index]! - expected }),
    );
    expect(data).toHaveLength(results.length);

    // The sampler's logprobs are the trainer's, wherever something was sampled.
    const { lossFnOutputs } = await student.forward(data, "importance_sampling");
    for (const [index, { lossFnInputs }] of data.entries()) {
      const sampled = lossFnInputs["logprobs"]!.toArray();
      const trained = lossFnOutputs[index]!.logprobs.toArray();
      expect(sampled).toHaveLength(trained.length);
      expect(sampled.filter((logprob) => logprob !== 0).length).toBeGreaterThan(20);
      for (const [position, logprob] of sampled.entries()) {
        if (logprob !== 0) expect(logprob).toBeCloseTo(trained[position]!, 5);
      }
    }

    const { promptTokens } = readAnswerMetadata(results[0]!.steps[1]!.providerMetadata)!;
    const answer = renderer.tokenizer.encode("Ada does.<|im_end|>", { addSpecialTokens: false });
    const logprobOfAnswer = async (from: SamplingClient) => {
      const logprobs = await from.computeLogprobs([...promptTokens!, ...answer]);
      return logprobs.slice(-answer.length).reduce<number>((sum, logprob) => sum + logprob!, 0);
    };
    const before = await logprobOfAnswer(first);
    const pass = student.forwardBackward(data, "importance_sampling");
    await Promise.all([pass, student.optimStep({ learningRate: 1e-3 })]);
    const after = await logprobOfAnswer(await student.saveWeightsAndGetSamplingClient());
    expect(after).toBeGreaterThan(before + 0.1);
  });
});
