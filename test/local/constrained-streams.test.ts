import { afterAll, beforeAll, expect, it } from "vitest";
import { type SamplingClient, ServiceClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import type { Tokenizer } from "../../src/tokenizers/index.js";
import { cpuMsOf } from "../support/cpu-time.js";
import { silent } from "./raw-client.js";

let backend: Awaited<ReturnType<typeof startLocalBackend>>;
let service: ServiceClient;
let sampler: SamplingClient;
let tokenizer: Tokenizer;
beforeAll(async () => {
  backend = await startLocalBackend({ listen: false, logger: silent });
  service = new ServiceClient({ ...backend, logLevel: "off" });
  sampler = await service.createSamplingClient({ baseModel: "tinkerts/nano" });
  tokenizer = await sampler.getTokenizer();
});
afterAll(async () => {
  await service.close();
  await backend.close();
});

const prompt = () => tokenizer.encode("An apple is ");
const schema = { type: "object", properties: { color: { enum: ["red", "green"] } }, required: ["color"] };

it("streams are JSON that fits a schema, with the logprobs of the model as it is", async () => {
  expect(await sampler.canConstrain()).toBe(true);
  for (let seed = 0; seed < 5; seed += 1) {
    const { sequences } = await sampler.stream({
      prompt: prompt(),
      samplingParams: { maxTokens: 60, seed, stop: [] },
      constraint: { type: "json_schema", schema },
    }).result;
    const { tokens, logprobs } = sequences[0]!;
    expect(["red", "green"]).toContain((JSON.parse(tokenizer.decode(tokens)) as { color: string }).color);
    const scored = await sampler.computeLogprobs([...prompt(), ...tokens]);
    for (const [place, logprob] of logprobs!.entries())
      expect(logprob).toBeCloseTo(scored[prompt().length + place]!, 3);
  }
});

const sign = { type: "sign", text: "a" };
const text = { type: "text", without: ["<"] };
const members = {
  ...{ type: "members", schema: {}, tool: "x", texts: ["a"], without: ["<"] },
  ...{ before: "", asText: "", asJson: "", behind: "", separator: "" },
};
const nothing = { type: "sequence", parts: [] };
let deep: object = sign;
for (let depth = 0; depth < 200; depth += 1) deep = { type: "choice", options: [deep] };

it.each([
  ["an unknown type", { type: "regex" }, /^constraint must be/],
  ["another field", { type: "json_object", schema }, /constraint must be/],
  ["a schema that cannot be kept", { type: "json_schema", schema: { uniqueItems: true } }, /uniqueItems/],
  ["no shape", { type: "shape", shape: { type: "tree" } }, /constraint\.shape must be the shape/],
  [
    "parts that are none",
    { type: "shape", shape: { type: "sequence", parts: [7] } },
    /constraint\.shape must be/,
  ],
  [
    "texts without an empty text",
    { type: "shape", shape: { type: "text", without: [""] } },
    /constraint\.shape must be/,
  ],
  [
    "a count below zero",
    { type: "shape", shape: { type: "repeat", item: sign, max: -1 } },
    /constraint\.shape must be/,
  ],
  ["a deep shape", { type: "shape", shape: deep }, /nested more than 100 levels deep/],
  [
    "a large shape",
    { type: "shape", shape: { type: "sign", text: "a".repeat(300_000) } },
    /has more than \d+ characters/,
  ],
  [
    "many parts",
    {
      type: "shape",
      shape: { type: "choice", options: Array(2000).fill({ type: "plain", text: "a".repeat(100) }) },
    },
    /takes more than \d+ steps/,
  ],
  [
    "long texts that a text may not contain",
    { type: "shape", shape: { type: "text", without: ["a".repeat(5000)] } },
    /constraint\.shape must be/,
  ],
  ["a shape of nothing", { type: "shape", shape: nothing }, /must not be met by an empty answer/],
  ["a shape that nothing fits", { type: "shape", shape: { type: "choice", options: [] } }, /./],
])("refuses %s", async (_, constraint, why) => {
  const request = { prompt: [1], samplingParams: { maxTokens: 20, stop: [] }, constraint };
  const asked = async () => sampler.stream(request as never).result;
  await expect(asked()).rejects.toThrow(why);
});

it.each([
  ["nothing at all, for ever", { type: "repeat", item: nothing }],
  [
    "repetitions of repetitions",
    { type: "repeat", item: { type: "repeat", item: { type: "repeat", item: sign } } },
  ],
  ["billions of times", { type: "repeat", item: sign, max: 1e12 }],
  ["members of no object", { ...members, schema: { type: "array" } }],
  ["members without signs", { ...members, schema: { properties: { a: true, b: true }, required: ["a"] } }],
  ["members that may all be missing", { type: "sequence", parts: [members, sign] }],
  ["many texts", { type: "sequence", parts: [...Array(3000).fill(text), sign] }],
  ["many ways to say the same", { type: "repeat", item: { type: "choice", options: Array(50).fill(sign) } }],
])("a shape of %s ends or is refused, with bounded work", async (_, shape) => {
  const request = {
    prompt: [1],
    samplingParams: { maxTokens: 20, stop: [] },
    constraint: { type: "shape", shape },
  };
  const used = await cpuMsOf(() =>
    sampler.stream(request as never).result.then(
      () => {},
      () => {},
    ),
  );
  expect(used).toBeLessThan(20_000);
});
