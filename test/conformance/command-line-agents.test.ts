/** Coding agents as they are in the registries, at a gateway: they read a file with their own tool and report its word. */
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { type GatewaySession, mainThread, startGateway } from "../../src/gateway/index.js";
import { ServiceClient } from "../../src/index.js";
import { defaultModel, startLocalBackend } from "../../src/local/index.js";
import { randomModel } from "../engine/random-model.js";
import { callText, ScriptedSampler } from "../gateway/scripted-sampler.js";
import { silent } from "../local/raw-client.js";

const modules = join(process.env["TINKERTS_AGENTS"] ?? "", "node_modules");
const platform = `${process.platform}-${process.arch}`;
const node = join(modules, `node-${platform}`, "bin/node");
/** Nano's tokenizer takes several times as many tokens as a large one for their long prompts. */
const POSITIONS = 400_000;
const RANDOM_POSITIONS = 2 ** 18;
const MAX_RUN_MS = 180_000;
const QUESTION = "Read the file notes.txt in this folder, and tell me the word that it holds.";
const NOTE = "The word is plum.";

const root = mkdtempSync(join(tmpdir(), "tinkerts-coding-agents-"));
afterAll(() => rmSync(root, { recursive: true, force: true, maxRetries: 5 }));

interface Place {
  readonly home: string;
  readonly cwd: string;
  readonly baseURL: string;
}

interface CodingAgent {
  readonly name: string;
  /** The file that is run, below `node_modules`. */
  readonly program: string;
  readonly args: readonly string[];
  /** Files of its settings, by their path. */
  readonly files?: (place: Place) => Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
  /** The call that reads the note. */
  readonly call: (place: Place) => string;
}

const read = (name: string, argument: string) => (place: Place) =>
  callText(name, { [argument]: join(place.cwd, "notes.txt") });

const AGENTS: readonly CodingAgent[] = [
  {
    name: "pi",
    program: "@earendil-works/pi-coding-agent/dist/cli.js",
    args: ["--offline", "--no-session", "--provider", "gateway", "--model", "m", "-p", QUESTION],
    files: ({ home, baseURL }) => ({
      [join(home, ".pi/agent/models.json")]: JSON.stringify({
        providers: {
          gateway: {
            baseUrl: baseURL,
            api: "openai-completions",
            apiKey: "OPENAI_API_KEY",
            models: [{ id: "m" }],
          },
        },
      }),
    }),
    call: read("read", "path"),
  },
  {
    name: "Claude Code",
    program: `@anthropic-ai/claude-code-${platform}/claude`,
    args: ["-p", QUESTION, "--allowedTools", "Read"],
    env: { CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1" },
    call: read("Read", "file_path"),
  },
  {
    name: "Codex",
    program: "@openai/codex/bin/codex.js",
    args: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", QUESTION],
    files: ({ home, baseURL }) => ({
      [join(home, ".codex/config.toml")]: [
        'model = "m"\nmodel_provider = "gateway"\n[model_providers.gateway]\nname = "gateway"',
        `base_url = "${baseURL}"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n`,
      ].join("\n"),
    }),
    call: () => callText("exec_command", { cmd: "cat notes.txt" }),
  },
  {
    name: "opencode",
    program: `opencode-${platform}/bin/opencode`,
    args: ["run", "-m", "gateway/m", QUESTION],
    files: ({ cwd, baseURL }) => ({
      [join(cwd, "opencode.json")]: JSON.stringify({
        provider: {
          gateway: {
            npm: "@ai-sdk/openai-compatible",
            options: { baseURL, apiKey: "{env:OPENAI_API_KEY}" },
            models: { m: { name: "m" } },
          },
        },
      }),
    }),
    call: read("read", "filePath"),
  },
];

const installed = AGENTS.filter(({ program }) => existsSync(join(modules, program)));
for (const { name } of AGENTS.filter((agent) => !installed.includes(agent)))
  console.log(
    `command-line-agents.test.ts leaves ${name} out: npm run conformance -- --agents all installs it.`,
  );

/** Runs an agent as a session of a gateway, in a home and a folder of its own with the note in it. */
async function runAgent(agent: CodingAgent, session: GatewaySession, { home, cwd, baseURL }: Place) {
  const files = { [join(cwd, "notes.txt")]: NOTE, ...agent.files?.({ home, cwd, baseURL }) };
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
  }
  const program = join(modules, agent.program);
  const isScript = program.endsWith(".js");
  const env = {
    ...{ PATH: `${dirname(node)}:${process.env["PATH"]}`, HOME: home, ...agent.env },
    ...{ OPENAI_BASE_URL: session.baseURL, OPENAI_API_KEY: session.apiKey },
    ...{ ANTHROPIC_BASE_URL: session.anthropicBaseURL, ANTHROPIC_AUTH_TOKEN: session.apiKey },
  };
  const run = await new Promise<{ code: number; output: string }>((resolve) => {
    const args = isScript ? [program, ...agent.args] : [...agent.args];
    const child = execFile(
      isScript ? node : program,
      args,
      { env, cwd, timeout: MAX_RUN_MS },
      (error, stdout, stderr) => resolve({ code: error ? 1 : 0, output: `${stdout}\n${stderr}` }),
    );
    child.stdin?.end();
  });
  return { ...run, record: await session.end() };
}

const placeOf = (name: string, { baseURL }: GatewaySession): Place => {
  const home = join(root, name.replaceAll(" ", "-"));
  return { home, cwd: join(home, "work"), baseURL };
};

describe.skipIf(installed.length === 0)("a coding agent", () => {
  it.each(installed)("$name reads a file and tells what it holds", async (agent) => {
    const script = new ScriptedSampler();
    await using gateway = await startGateway({
      ...{ models: { m: script.sampler }, maxContextLength: POSITIONS, logger: silent },
    });
    const session = gateway.session();
    const place = placeOf(agent.name, session);
    script.before = async () => {
      const prompt = script.prompts.at(-1)!;
      const isAside = !prompt.includes("<tools>");
      const answer = prompt.includes(NOTE) ? "It is plum." : isAside ? "A title" : agent.call(place);
      script.answers.unshift(answer);
    };
    const { code, output, record } = await runAgent(agent, session, place);
    expect(code, output).toBe(0);
    expect(output).toContain("It is plum.");
    const main = mainThread(record)!;
    expect(main.turns.length, JSON.stringify(record.threads.map(({ fork }) => fork))).toBeGreaterThan(1);
    const [first, second] = main.turns.slice(-2);
    const known = [...first!.prompt.toInts(), ...first!.tokens];
    expect(second!.prompt.toInts().slice(0, known.length)).toEqual(known);
  });

  it.each(installed)("$name takes what a random model answers", async (agent) => {
    const path = await randomModel(1, RANDOM_POSITIONS);
    try {
      // Its name says which format it has.
      const model = { name: defaultModel.name, path };
      await using backend = await startLocalBackend({ models: [model], logger: silent });
      await using service = new ServiceClient({ ...backend, logLevel: "off" });
      await using gateway = await startGateway({ service, models: { m: model.name }, logger: silent });
      const session = gateway.session({ limits: { maxTokensPerAnswer: 300 } });
      const { code, output, record } = await runAgent(
        agent,
        session,
        placeOf(`${agent.name} by chance`, session),
      );
      expect(record.counts, output).toMatchObject({ failures: 0, unfinished: 0 });
      expect(record.counts.sampledTokens).toBeGreaterThan(0);
      // Some agents give up on an answer that was cut off.
      const wasCut = record.threads.some(({ turns }) => turns.at(-1)?.stopReason === "length");
      if (!wasCut) expect(code, output).toBe(0);
    } finally {
      rmSync(path, { recursive: true, force: true });
    }
  });
});
