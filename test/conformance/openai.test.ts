import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { explainSkip, harnessPython, hasPythonModule, runPython } from "./judge.js";

explainSkip("openai.test.ts");

const model = defaultModel.name;
let backend: LocalBackend;
beforeAll(async () => {
  backend = await startLocalBackend({ apiKeys: ["tml-key-of-the-tests"] });
});
afterAll(() => backend.close());

async function run<T>(script: string, env: Record<string, string> = {}): Promise<T> {
  const { baseURL, apiKey } = backend;
  const said = await runPython(script, { baseURL, apiKey, model, env, interpreter: harnessPython });
  return JSON.parse(said.trim().split("\n").at(-1)!) as T;
}

describe.skipIf(!hasPythonModule("openai", "openai.test.ts", harnessPython))(
  "the openai package of Python",
  () => {
    it("chats, streams, completes, gets JSON, and gets errors", async () => {
      const told = await run<Record<string, unknown[]>>("openai_client.py");
      expect(told).toMatchObject({
        models: [model],
        model,
        first_logprobs: [null, null],
        scored: [
          [false, true, true],
          [false, true],
        ],
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
    });
  },
);
