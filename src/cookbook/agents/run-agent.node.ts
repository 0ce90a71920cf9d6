import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { GatewaySession } from "../../gateway/gateway.js";
import { untilAborted } from "../../transport/index.js";
import { settled } from "../environments/within-time.js";
import type { Agent, AgentCommand } from "./agent.js";
import { runProcess } from "./agent-process.node.js";
import type { EpisodeFolder } from "./episode-folder.node.js";

/** How an agent's run ended. */
export interface AgentOutcome {
  readonly output: unknown;
  readonly stderr: string;
  readonly exitCode: number | null | undefined;
  readonly error: unknown;
  readonly isFailed: boolean;
}

/** Operating systems refuse much longer variables. */
const MAX_VARIABLE_BYTES = 100_000;
/** With these an agent, or a tool that it runs, could bypass the gateway. */
const OWN_KEYS = ["TINKER_API_KEY", "TINKER_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL"];

/** Runs an agent until it ends. A function that ignores its signal is abandoned: its session refuses further calls. */
export async function runAgent<P>(
  agent: Agent<P>,
  problem: P,
  session: GatewaySession,
  folder: EpisodeFolder | undefined,
  signal: AbortSignal,
): Promise<AgentOutcome> {
  if (typeof agent === "function") {
    const { baseURL, anthropicBaseURL, apiKey } = session;
    const call = { problem, baseURL, anthropicBaseURL, apiKey, signal };
    const common = { stderr: "", exitCode: undefined };
    try {
      const output = await untilAborted(
        settled(() => agent(call)),
        signal,
      );
      return { ...common, output, error: undefined, isFailed: false };
    } catch (error) {
      return { ...common, output: undefined, error, isFailed: true };
    }
  }
  const input = typeof problem === "string" ? problem : `${JSON.stringify(problem)}\n`;
  const { path } = folder!;
  const { exitCode, stdout, stderr } = await runProcess({
    ...programOf(agent, path),
    env: environmentOf(agent, { session, input, folder: path }),
    input,
    signal,
  });
  return { output: stdout, stderr, exitCode, error: undefined, isFailed: exitCode !== 0 };
}

/** The program with absolute paths, since it runs in another folder. */
function programOf({ command, args = [], cwd }: AgentCommand, folder: string) {
  if (cwd !== undefined) return { command, args, cwd: resolve(cwd) };
  return {
    command: /[/\\]/.test(command) ? resolve(command) : command,
    args: args.map((arg) => (!arg.startsWith("-") && isFile(arg) ? resolve(arg) : arg)),
    cwd: folder,
  };
}

function isFile(path: string): boolean {
  return existsSync(path) && statSync(path).isFile();
}

function environmentOf(
  { env = {} }: AgentCommand,
  {
    session,
    input,
    folder,
  }: { readonly session: GatewaySession; readonly input: string; readonly folder: string },
): Record<string, string> {
  const { baseURL, anthropicBaseURL, apiKey } = session;
  const local = (given: string | undefined) => [given, "127.0.0.1", "localhost"].filter(Boolean).join(",");
  const whole: Record<string, string | undefined> = {
    ...process.env,
    ...Object.fromEntries(OWN_KEYS.map((name) => [name, undefined])),
    ...{ OPENAI_BASE_URL: baseURL, OPENAI_API_BASE: baseURL, OPENAI_API_KEY: apiKey },
    ...{ ANTHROPIC_BASE_URL: anthropicBaseURL, ANTHROPIC_AUTH_TOKEN: apiKey },
    ...{ NO_PROXY: local(process.env["NO_PROXY"]), no_proxy: local(process.env["no_proxy"]) },
    TINKERTS_FOLDER: folder,
    TINKERTS_PROBLEM: Buffer.byteLength(input) > MAX_VARIABLE_BYTES ? undefined : input.trimEnd(),
    ...env,
  };
  return Object.fromEntries(
    Object.entries(whole).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}
