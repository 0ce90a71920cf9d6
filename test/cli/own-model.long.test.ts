import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { chat, conversations, planSupervised } from "../../src/cookbook/index.js";
import { ServiceClient } from "../../src/index.js";
import { defaultModel } from "../../src/local/index.js";
import { run, start } from "./command.js";
import { cleanEnv } from "./server.js";

const question = { role: "user", content: "Who are you?" };
const answer = { role: "assistant", content: "I am mine." };

let folder: string;
let elsewhere: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "tinkerts-own-"));
  elsewhere = join(folder, "elsewhere");
  mkdirSync(elsewhere);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A server in its own process, and an unreachable hub. */
async function serving(args: readonly string[]) {
  const env = { ...cleanEnv(folder), HF_ENDPOINT: "http://127.0.0.1:9" };
  const server = start(["serve", "--port", "0", "--threads", "1", ...args], { cwd: folder, env });
  const [, baseURL] = await server.seen(/TINKER_BASE_URL=(\S+)/);
  return {
    client: { baseURL: baseURL!, apiKey: "tml-local" },
    env: { ...env, TINKER_BASE_URL: baseURL! },
    async [Symbol.asyncDispose]() {
      server.child.kill("SIGINT");
      await server.finished;
    },
  };
}

it("trains, merges, serves under a name of its own, and talks from elsewhere", async () => {
  {
    await using server = await serving([]);
    await using service = new ServiceClient(server.client);
    const training = await service.createLoraTrainingClient({ baseModel: "tinkerts/nano", rank: 8, seed: 1 });
    const tokenizer = await training.getTokenizer();
    const prompt = tokenizer.applyChatTemplate([question], { addGenerationPrompt: true });
    const whole = tokenizer.applyChatTemplate([question, answer]);
    const batch = [
      {
        modelInput: whole.slice(0, -1),
        lossFnInputs: {
          targetTokens: whole.slice(1),
          weights: whole.slice(1).map((_, index) => (index + 1 < prompt.length ? 0 : 1)),
        },
      },
    ];
    for (let step = 0; step < 40; step += 1) {
      const pass = training.forwardBackward(batch, "cross_entropy");
      await training.optimStep({ learningRate: 1e-2 });
      await pass;
    }
    const { path } = await training.saveWeightsForSampler("mine");
    const merge = ["checkpoint", "merge", path, "--base", defaultModel.path, "-o", "merged"];
    expect(await run(merge, { cwd: folder, env: server.env })).toMatchObject({ code: 0 });
  }
  await using server = await serving(["--model", "mine=./merged"]);
  await using service = new ServiceClient(server.client);
  const sampler = await service.createSamplingClient({ baseModel: "mine" });
  expect((await chat(sampler, [question], { temperature: 0 })).text).toBe("I am mine.");

  const talk = ["chat", "--model", "mine", "--temperature", "0"];
  const told = await run(talk, { cwd: elsewhere, env: server.env, input: "Who are you?\n" });
  expect(told).toEqual({ code: 0, stdout: "I am mine.\n", stderr: "" });
  writeFileSync(join(elsewhere, "rows.jsonl"), JSON.stringify({ messages: [question, answer] }));
  const checked = await run(["data", "check", "rows.jsonl", "--model", "mine", "--json"], {
    cwd: elsewhere,
    env: server.env,
  });
  expect(checked).toMatchObject({ code: 0, stderr: "" });
  expect(JSON.parse(checked.stdout)).toMatchObject({ renderer: "template", rows: 1 });
  const data = conversations([{ messages: [question, answer] }, { messages: [question, answer] }]);
  const { config } = await planSupervised({ service, model: "mine", data, learningRate: 1e-3 });
  expect(config).toMatchObject({ model_name: "mine", renderer_name: "template" });
});
