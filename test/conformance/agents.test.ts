/** Agents as they are in the registries, at a gateway: whole loops with tool calls, and answers of a random model. */
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Gateway, mainThread, type SessionRecord, startGateway } from "../../src/gateway/index.js";
import { ServiceClient } from "../../src/index.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { randomModel } from "../engine/random-model.js";
import { callText, ScriptedSampler } from "../gateway/scripted-sampler.js";
import { silent } from "../local/raw-client.js";
import { harnessPython, hasPythonModule, pythonFile } from "./judge.js";

/** Folder in which npm has installed the agents, and the Node that runs them. */
const installed = process.env["TINKERTS_AGENTS"] ?? "";
const node = join(installed, "node_modules", `node-${process.platform}-${process.arch}`, "bin/node");
const isInstalled = existsSync(node);
if (!isInstalled) console.log("agents.test.ts runs no agents of npm: npm run conformance installs them.");

const POSITIONS = 65_536;
const MAX_RUN_MS = 120_000;

interface Agent {
  readonly name: string;
  readonly args: (programs: string) => readonly [command: string, ...args: string[]];
  readonly isStreamed?: boolean;
  /** What the program is missing to run here, if anything. */
  readonly isMissing: boolean;
}

const ofNode = (name: string, ways = [false, true]): Agent[] =>
  ways.map((isStreamed) => ({
    name: `${name}${isStreamed ? ", streamed" : ""}`,
    args: (programs) => [node, join(programs, `${name}.mjs`)],
    isStreamed,
    isMissing: !isInstalled,
  }));
const ofPython = (name: string, module: string): Agent => ({
  name: `${name} of Python`,
  args: () => [harnessPython, pythonFile(`agent_${name}.py`)],
  isMissing: !hasPythonModule(module, "agents.test.ts", harnessPython),
});

const AGENTS: readonly Agent[] = [
  ...ofNode("ai-sdk-6"),
  ...ofNode("ai-sdk-7"),
  ...ofNode("ai-sdk-7-responses"),
  ...ofNode("mastra"),
  ...ofNode("openai-agents"),
  ...ofNode("openai-agents-chat"),
  // Streamed, it asks a web site for a tokenizer first.
  ...ofNode("langchain", [false]),
  ...ofNode("langgraph"),
  ofPython("openai", "openai"),
  ofPython("anthropic", "anthropic"),
  ofPython("pydantic_ai", "pydantic_ai"),
];

const folder = mkdtempSync(join(tmpdir(), "tinkerts-agents-"));
const programs = join(installed, "programs");
let modelFolder: string | undefined;
let backend: LocalBackend;
let random: Gateway;
beforeAll(async () => {
  if (isInstalled) cpSync(fileURLToPath(new URL("agents", import.meta.url)), programs, { recursive: true });
  modelFolder = await randomModel(1, POSITIONS);
  // Its name says which format it has.
  const model = { name: defaultModel.name, path: modelFolder };
  backend = await startLocalBackend({ models: [model], logger: silent });
  random = await startGateway({
    ...{ service: new ServiceClient(backend), models: { long: model.name }, logger: silent },
  });
});
afterAll(async () => {
  await random?.close();
  await backend?.close();
  for (const each of [folder, modelFolder]) if (each) rmSync(each, { recursive: true, force: true });
});

interface Run {
  readonly code: number;
  readonly output: string;
  /** What it says in its last line. */
  readonly text: string | undefined;
  readonly record: SessionRecord;
}

/** Runs an agent as a session of a gateway, which it knows by its environment alone. */
async function runAgent({ args, isStreamed }: Agent, gateway: Gateway): Promise<Run> {
  const session = gateway.session({ limits: { maxTokensPerAnswer: 2000 } });
  const [command, ...rest] = args(programs);
  const env = {
    ...{ PATH: process.env["PATH"], HOME: folder, STREAMED: isStreamed ? "1" : "0" },
    ...{ OPENAI_BASE_URL: session.baseURL, OPENAI_API_KEY: session.apiKey },
    ...{ ANTHROPIC_BASE_URL: session.anthropicBaseURL, ANTHROPIC_AUTH_TOKEN: session.apiKey },
  };
  const run = await new Promise<Omit<Run, "record">>((resolve) => {
    execFile(command, rest, { env, cwd: folder, timeout: MAX_RUN_MS }, (error, stdout, stderr) => {
      const last = stdout.trim().split("\n").at(-1) ?? "";
      const text = last.startsWith("{") ? (JSON.parse(last) as { text: string }).text : undefined;
      resolve({ code: Number(error?.code ?? (error ? 1 : 0)), output: `${stdout}\n${stderr}`, text });
    });
  });
  return { ...run, record: await session.end() };
}

describe.each(AGENTS)("$name", (agent) => {
  it.skipIf(agent.isMissing)("loops through tool calls, in one thread of the sampled tokens", async () => {
    const script = new ScriptedSampler(
      `Step by step.\n${callText("add", { a: 19, b: 23 })}`,
      callText("add", { a: 42, b: 8 }),
      "The sum is 50.",
    );
    await using gateway = await startGateway({
      ...{ models: { scripted: script.sampler }, maxContextLength: POSITIONS, logger: silent },
    });
    const { code, output, text, record } = await runAgent(agent, gateway);
    expect(code, output).toBe(0);
    // Mastra says what all of its steps said.
    expect(text).toMatch(/^(Step by step\.)?The sum is 50\.$/);
    expect(script.prompts).toHaveLength(3);
    expect(script.prompts[1]).toContain("<tool_response>\n42\n</tool_response>");
    expect(script.prompts[2]).toContain("<tool_response>\n50\n</tool_response>");
    expect(record.counts).toMatchObject({ requests: 3, failures: 0, unfinished: 0 });
    expect(record.threads.map(({ fork }) => fork)).toEqual([undefined]);
    const turns = mainThread(record)!.turns;
    for (const [at, { prompt, tokens }] of turns.slice(0, -1).entries()) {
      const known = [...prompt.toInts(), ...tokens];
      expect(turns[at + 1]!.prompt.toInts().slice(0, known.length)).toEqual(known);
    }
  });

  it.skipIf(agent.isMissing)("takes what a random model answers", async () => {
    const { code, output, text, record } = await runAgent(agent, random);
    expect(record.counts, output).toMatchObject({ failures: 0, unfinished: 0 });
    expect(record.counts.sampledTokens).toBeGreaterThan(0);
    // Some agents give up on an answer that was cut off.
    const wasCut = mainThread(record)!.turns.at(-1)!.stopReason === "length";
    if (!wasCut)
      expect({ code, isText: typeof text === "string" }, output).toEqual({ code: 0, isText: true });
  });
});
