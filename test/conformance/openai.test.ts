import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ServiceClient } from "../../src/index.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { ModelInput } from "../../src/wire/index.js";
import { explainSkip, hasPythonModule, runPython } from "./judge.js";

explainSkip("openai.test.ts");

const model = defaultModel.name;
let backend: LocalBackend;
beforeAll(async () => {
  backend = await startLocalBackend({ apiKeys: ["tml-key"] });
});
afterAll(() => backend.close());

async function run<T>(script: string, env: Record<string, string> = {}): Promise<T> {
  const { baseURL, apiKey } = backend;
  const said = await runPython(script, { baseURL, apiKey, model, env });
  return JSON.parse(said.trim().split("\n").at(-1)!) as T;
}

describe.skipIf(!hasPythonModule("openai", "openai.test.ts"))("the openai package of Python", () => {
  it("chats, streams, completes, gets JSON, and is told what is wrong", async () => {
    const told = await run<Record<string, unknown[]>>("openai_client.py");
    expect(told).toMatchObject({
      models: [model],
      model,
      first_logprobs: [null, null],
      structured: { sum: expect.any(Number) },
      errors: [
        ["NotFoundError", 404, "model_not_found", "model"],
        ["BadRequestError", 400, "unsupported_parameter", "presence_penalty"],
        ["BadRequestError", 400, "context_length_exceeded", "prompt"],
        ["NotFoundError", 404, "unknown_url", null],
      ],
    });
    expect(told["streamed"]).toEqual(told["chat"]);
    expect(told["usage"]![0]).toBe(told["usage"]![1]);
    expect(told["logprobs"]!.every((count) => Number(count) > 0)).toBe(true);
    for (const [index, prompt] of ["One, two,", "A, B,"].entries())
      expect(String(told["texts"]![index]).startsWith(prompt)).toBe(true);
  }, 120_000);
});

describe.skipIf(!hasPythonModule("lm_eval", "openai.test.ts"))("lm-eval", () => {
  it("finds the scores that computeLogprobs gives, and what a greedy sample says", async () => {
    const words = ["stick", "apple", "cat", "string"];
    const pairs = [
      ...words.flatMap((word) => [
        [`English: ${word}\nPig Latin:`, ` ${word.slice(1)}-${word[0]}ay`],
        [`Spell ${word}.`, ` ${[...word].join("-")}`],
      ]),
      ...[3, 17, 48].map((number) => [`${number}+${number}=`, String(2 * number)]),
    ];
    const { tokens, scores, generated } = await run<{
      tokens: [number[], number[]][];
      scores: [number, boolean][];
      generated: string[];
    }>("lm_eval_scores.py", { PAIRS: JSON.stringify(pairs) });
    await using service = new ServiceClient(backend);
    const sampler = await service.createSamplingClient({ baseModel: model });
    const tokenizer = await sampler.getTokenizer();
    for (const [index, [context, continuation]] of tokens.entries()) {
      const whole = [...context, ...continuation];
      const logprobs = await sampler.computeLogprobs(ModelInput.fromInts(whole));
      const expected = logprobs.slice(context.length).reduce<number>((sum, logprob) => sum + logprob!, 0);
      expect(scores[index]![0]).toBeCloseTo(expected, 9);
      const samplingParams = { temperature: 0, maxTokens: Math.max(8, continuation.length), stop: [] };
      const greedy = await sampler.sample({ prompt: ModelInput.fromInts(context), samplingParams });
      const drawn = Array.from(greedy.sequences[0]!.tokens);
      expect(scores[index]![1]).toBe(continuation.every((token, place) => token === drawn[place]));
      const said = tokenizer.decode(drawn.slice(0, 8), { skipSpecialTokens: true });
      expect(said.startsWith(generated[index]!)).toBe(true);
    }
    expect(scores.some(([, isGreedy]) => isGreedy)).toBe(true);
    expect(scores.some(([, isGreedy]) => !isGreedy)).toBe(true);
  }, 180_000);
});

describe.skipIf(!hasPythonModule("inspect_ai", "openai.test.ts"))("inspect-ai", () => {
  it("runs a task, and knows a conversation that is too long as such", async () => {
    const { status, answers, stops } = await run<{ status: string; answers: string[]; stops: string[] }>(
      "inspect_task.py",
    );
    expect(status).toBe("success");
    expect(answers.slice(0, 3)).toEqual(["2", "4", "6"]);
    expect(stops).toEqual(["stop", "stop", "stop", "model_length"]);
  }, 120_000);
});
