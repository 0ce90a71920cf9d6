import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { datumFromExample } from "../../src/cookbook/index.js";
import { type SamplingClient, ServiceClient } from "../../src/index.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { getRenderer, type Renderer, textOf } from "../../src/renderers/index.js";
import type { TextTokenizer } from "../../src/tokenizers/index.js";
import { ModelInput } from "../../src/wire/index.js";
import { silent } from "../local/raw-client.js";
import { ScriptedEngine } from "../local/scripted-engine.js";
import { explainSkip, harnessPython, hasPythonModule, lastLine, runPython } from "./judge.js";
import { Random } from "./random.js";
import { writeReport } from "./report.js";

explainSkip("harnesses.test.ts");

const EOS = 511;
const WORDS = ["apple", "river", "stone", "cloud", "tiger", "lemon", "piano", "candle", "rocket", "window"];

interface Row {
  readonly question: string;
  readonly choices: readonly string[];
  /** Which of the choices is right. */
  readonly answer: number;
}

/** Every word has a random number; a choice may be two tokens or six. */
function makeRows(random: Random): Row[] {
  return WORDS.map((word) => {
    const choices = Array.from({ length: 4 }, () => String(random.integer(10, 99)));
    const answer = random.integer(0, 3);
    choices[(answer + 1) % 4] = `${choices[answer]} and ${random.integer(100, 999)}`;
    return { question: `What is the number of ${word}?`, choices, answer };
  });
}

const has = (module: string) => hasPythonModule(module, "harnesses.test.ts", harnessPython);

describe.skipIf(!has("lm_eval") && !has("inspect_ai"))(
  "a model that was trained, judged by harnesses",
  () => {
    const rows = makeRows(new Random(Number(process.env["TINKERTS_SEED"] ?? 1)));
    let backend: LocalBackend;
    let service: ServiceClient;
    let model: string;
    let sampler: SamplingClient;
    let tokenizer: TextTokenizer;
    let renderer: Renderer;

    beforeAll(async () => {
      backend = await startLocalBackend({ apiKeys: ["tml-key-of-the-tests"], logger: silent });
      service = new ServiceClient(backend);
      const training = await service.createLoraTrainingClient({
        baseModel: defaultModel.name,
        rank: 16,
        seed: 1,
      });
      tokenizer = await training.getTokenizer();
      renderer = getRenderer("qwen3_instruct", tokenizer);
      // It learns some of the answers, so that scores are neither 0 nor 1.
      const examples = rows.slice(0, 6).flatMap(({ question, choices, answer }) => {
        const messages = [
          { role: "user", content: question },
          { role: "assistant", content: choices[answer]! },
        ];
        const input = ModelInput.fromInts(tokenizer.encode(`${question} ${choices[answer]}\n`));
        const asText = { input, weights: new Float32Array(input.length).fill(1) };
        return [asText, ...renderer.buildSupervisedExamples(messages, "all_assistant_messages")];
      });
      const data = examples.map((example) => datumFromExample(example)!);
      for (let step = 0; step < 40; step += 1) {
        const pass = training.forwardBackward(data, "cross_entropy");
        await training.optimStep({ learningRate: 4e-3 });
        await pass;
      }
      ({ path: model } = await training.saveWeightsForSampler("judged"));
      sampler = await service.createSamplingClient({ modelPath: model });
    });
    afterAll(async () => {
      await service?.[Symbol.asyncDispose]();
      await backend?.close();
    });

    async function score(context: readonly number[], continuation: readonly number[]) {
      const prompt = ModelInput.fromInts([...context, ...continuation]);
      const logprobs = (await sampler.computeLogprobs(prompt)).slice(context.length) as number[];
      return logprobs.reduce((sum, logprob) => sum + logprob, 0);
    }

    async function greedy(
      prompt: ModelInput,
      samplingParams: { maxTokens: number; stop: string[] | number[] },
    ) {
      const { sequences } = await sampler.sample({
        prompt,
        samplingParams: { ...samplingParams, temperature: 0 },
      });
      return Array.from(sequences[0]!.tokens);
    }

    async function chatAnswer(question: string): Promise<string> {
      const prompt = renderer.buildPrompt([{ role: "user", content: question }]);
      const said = await greedy(prompt, { maxTokens: 12, stop: renderer.stopSequences as number[] });
      return textOf(renderer.parseResponse(said).message);
    }

    it.skipIf(!has("lm_eval"))("lm-eval's tasks score as computeLogprobs and greedy samples do", async () => {
      const { baseURL, apiKey } = backend;
      const env = { ROWS: JSON.stringify(rows) };
      const script = { baseURL, apiKey, model, env, interpreter: harnessPython };
      const { version, scores, answers } = lastLine<{
        version: string;
        scores: Record<string, Record<string, number>>;
        answers: { choice: [number, boolean][][]; generation: string[][]; chat: string[][] };
      }>(await runPython("lm_eval_tasks.py", script));
      const right: boolean[] = [];
      const rightByLength: boolean[] = [];
      let [nats, bytes, compared] = [0, 0, 0];
      const best = (values: readonly number[]) => values.indexOf(Math.max(...values));
      for (const [index, { question, choices, answer }] of rows.entries()) {
        const context = tokenizer.encode(question, { addSpecialTokens: false });
        const sums: number[] = [];
        for (const [place, choice] of choices.entries()) {
          const whole = tokenizer.encode(`${question} ${choice}`, { addSpecialTokens: false });
          const continuation = whole.slice(context.length);
          sums.push(await score(context, continuation));
          const drawn = await greedy(ModelInput.fromInts(context), {
            maxTokens: continuation.length,
            stop: [],
          });
          const [logprob, isGreedy] = answers.choice[index]![place]!;
          expect(logprob).toBeCloseTo(sums.at(-1)!, 9);
          expect(isGreedy).toBe(continuation.every((token, position) => token === drawn[position]));
          compared += 1;
        }
        right.push(best(sums) === answer);
        rightByLength.push(best(sums.map((sum, place) => sum / choices[place]!.length)) === answer);
        nats += await score([EOS], context);
        bytes += Buffer.byteLength(question);
        const [line] = tokenizer
          .decode(await greedy(ModelInput.fromInts(context), { maxTokens: 12, stop: ["\n"] }), {
            skipSpecialTokens: true,
          })
          .split("\n");
        expect(answers.generation[index]).toEqual([line]);
        expect(answers.chat[index]).toEqual([(await chatAnswer(question)).split("\n")[0]]);
      }
      const flags = answers.choice.flat().map(([, isGreedy]) => isGreedy);
      expect(new Set(flags)).toEqual(new Set([true, false]));
      const mean = (values: readonly boolean[]) => values.filter(Boolean).length / values.length;
      expect(scores["choice"]!["acc"]).toBeCloseTo(mean(right), 12);
      expect(scores["choice"]!["acc_norm"]).toBeCloseTo(mean(rightByLength), 12);
      expect(scores["rolling"]!["bits_per_byte"]).toBeCloseTo(-nats / bytes / Math.LN2, 9);
      const exact = (said: string[][], before: string) =>
        mean(rows.map(({ choices, answer }, index) => said[index]![0] === before + choices[answer]));
      expect(scores["generation"]!["exact_match"]).toBeCloseTo(exact(answers.generation, " "), 12);
      expect(scores["chat"]!["exact_match"]).toBeCloseTo(exact(answers.chat, ""), 12);
      // The harness shows what it was trained on, and only that.
      for (const task of ["generation", "chat"]) {
        expect(scores[task]!["exact_match"]).toBeGreaterThanOrEqual(0.5);
        expect(scores[task]!["exact_match"]).toBeLessThan(1);
      }
      writeReport("lm-eval", { version, compared, rows: rows.length, scores });
    });

    it.skipIf(!has("inspect_ai"))(
      "inspect-ai scores its answers, and takes a text that is too long for the model's length",
      async () => {
        const asked = [
          ...rows.map(({ question, choices, answer }) => ({ question, target: choices[answer]! })),
          { question: "far too long ".repeat(200), target: "nothing" },
        ];
        const { baseURL, apiKey } = backend;
        const found = await inspect({ baseURL, apiKey, model }, asked);
        const tooLong = found.samples.pop()!;
        expect(tooLong.stopReason).toBe("model_length");
        expect(tooLong.completion).toMatch(/maximum context length is 512 tokens/);
        let right = 0;
        for (const [index, { question, target }] of asked.slice(0, -1).entries()) {
          const said = await chatAnswer(question);
          const { completion, stopReason, outputTokens, logprobs } = found.samples[index]!;
          expect(completion.startsWith(said)).toBe(true);
          // The end of a turn is counted and not shown.
          expect(logprobs).toHaveLength(outputTokens! - (stopReason === "stop" ? 1 : 0));
          if (completion.endsWith(target)) right += 1;
        }
        expect(right).toBeGreaterThanOrEqual(5);
        expect(found.accuracy).toBeCloseTo(right / asked.length, 12);
        writeReport("inspect-ai", { version: found.version, rows: asked.length, accuracy: found.accuracy });
      },
    );
  },
);

it.skipIf(!has("inspect_ai"))("inspect-ai runs the tools that a model calls", async () => {
  const engine = new ScriptedEngine();
  const call = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>';
  engine.answers.push(`Let me see.\n${call}`, "5");
  await using backend = await startLocalBackend({
    engine,
    apiKeys: ["tml-key-of-the-tests"],
    logger: silent,
  });
  const { baseURL, apiKey } = backend;
  const found = await inspect(
    { baseURL, apiKey, model: defaultModel.name },
    [{ question: "2 + 3?", target: "5" }],
    {
      TOOLS: "1",
    },
  );
  expect(found.accuracy).toBe(1);
  const [{ roles, toolErrors }] = found.samples as [Inspected["samples"][number]];
  expect(toolErrors).toEqual([]);
  expect(roles).toEqual(["user", "assistant", "tool", "assistant"]);
  expect(engine.heard[0]).toContain('"description": "Adds two numbers."');
  expect(engine.heard[1]).toContain(call);
  expect(engine.heard[1]).toContain("<tool_response>\n5\n</tool_response>");
});

it.skipIf(!has("anthropic"))(
  "Anthropic's package reads thoughts, tools and streams, and is told what is wrong",
  async () => {
    const engine = new ScriptedEngine("Qwen/Qwen3-8B");
    const call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>';
    const answer = "<think>\nEasy.\n</think>\n\nSunny: 21°, ☀️.";
    engine.answers.push(answer, answer, `<think>\nI must look.\n</think>\n\n${call}`, answer);
    await using backend = await startLocalBackend({
      engine,
      apiKeys: ["tml-key-of-the-tests"],
      logger: silent,
    });
    const { baseURL, apiKey } = backend;
    const script = { baseURL, apiKey, model: "Qwen/Qwen3-8B", interpreter: harnessPython };
    const told = lastLine<Record<string, unknown>>(await runPython("anthropic_client.py", script));
    const thinking = { type: "thinking", thinking: "Easy." };
    const text = { type: "text", text: "Sunny: 21°, ☀️." };
    expect(told).toMatchObject({
      whole: [thinking, text],
      streamed: [thinking, text],
      call: { name: "weather", input: { city: "Rome" } },
      last: [thinking, text],
      stops: ["end_turn", "end_turn", "tool_use", "end_turn"],
      errors: [
        ["NotFoundError", 404, "not_found_error"],
        ["BadRequestError", 400, "invalid_request_error"],
        ["AuthenticationError", 401, "authentication_error"],
      ],
    });
    const [counted, used] = told["inputTokens"] as [number, number];
    expect(counted).toBe(used);
    expect(told["texts"]).toBe("Sunny: 21°, ☀️.");
    expect(engine.heard[3]).toContain("<tool_response>\n21 degrees\n</tool_response>");
  },
);

/** What inspect-ai finds when it asks a server these questions. */
async function inspect(
  server: { readonly baseURL: string; readonly apiKey: string; readonly model: string },
  asked: readonly { readonly question: string; readonly target: string }[],
  env: Readonly<Record<string, string>> = {},
): Promise<Inspected> {
  const folder = await mkdtemp(join(tmpdir(), "tinkerts-inspect-"));
  const rows = { ROWS: JSON.stringify(asked), LOGS: folder };
  const script = { ...server, env: { ...rows, ...env }, interpreter: harnessPython };
  const output = await runPython("inspect_tasks.py", script).finally(() => rm(folder, { recursive: true }));
  return lastLine<Inspected>(output);
}

interface Inspected {
  readonly version: string;
  readonly accuracy: number;
  readonly samples: {
    readonly completion: string;
    readonly stopReason: string;
    readonly outputTokens: number | null;
    readonly logprobs: number[];
    readonly roles: string[];
    readonly toolErrors: string[];
  }[];
}
