import { type AgentCommand, type AgentOptions, isGroupReward } from "../../cookbook/agents/agent.js";
import { openFiles } from "../../cookbook/data/named-files.node.js";
import { readAll } from "../../cookbook/data/rows.js";
import { UsageError } from "../context.js";
import { defaultExportOf } from "../own-module.js";

/** Bytes of problems that are held in memory. */
const MAX_PROBLEM_BYTES = 256 * 2 ** 20;

/** Flags of `tinkerts train rl` that name an agent and its reward. */
export interface AgentFlags {
  readonly agent?: string;
  readonly reward?: string;
}

/** An agent from the command line: its program, its reward from a module, its problems from a file of rows. */
export async function agentSource(
  file: string,
  { agent, reward }: AgentFlags,
): Promise<Pick<AgentOptions, "agent" | "problems" | "reward">> {
  if (agent === undefined) throw new UsageError("--reward is for an agent: give --agent COMMAND as well");
  if (reward === undefined)
    throw new UsageError(
      "--agent needs --reward FILE, a module that exports a function of an episode: export default ({ text, exitCode }) => 1",
    );
  const program = programOf(agent);
  const given = await defaultExportOf(reward);
  if (typeof given !== "function" && !isGroupReward(given))
    throw new UsageError(
      `${reward} must export as its default a function of an episode, or rulerReward(judge): export default ({ text }) => 1`,
    );
  return { agent: program, reward: given as AgentOptions["reward"], problems: await problemsOf(file) };
}

async function problemsOf(file: string): Promise<readonly unknown[]> {
  await using rows = await openFiles([file]);
  const lines = await readAll(rows);
  const bytes = lines.reduce((sum, line) => sum + line.length, 0);
  if (bytes > MAX_PROBLEM_BYTES)
    throw new UsageError(
      `${file} has ${bytes} bytes of problems, more than the ${MAX_PROBLEM_BYTES} that can be held`,
    );
  return lines.map((line, index) => {
    try {
      return JSON.parse(Buffer.from(line).toString("utf8")) as unknown;
    } catch {
      throw new UsageError(`${rows.place(index)}: expected a problem as JSON, one per line`);
    }
  });
}

const WORD = /(?:[^\s"']|"[^"]*"|'[^']*')+/g;
const QUOTED = /"([^"]*)"|'([^']*)'/g;

/** The words of a command; a quoted text is one word, or a part of one. */
export function programOf(text: string): AgentCommand {
  if (text.replaceAll(WORD, "").trim() !== "")
    throw new UsageError(`--agent has a quote without its end: ${text}`);
  const [command = "", ...args] = (text.match(WORD) ?? []).map((word) => word.replaceAll(QUOTED, "$1$2"));
  if (command === "") throw new UsageError('--agent must be a command, such as "node agent.mjs"');
  return { command, args };
}
