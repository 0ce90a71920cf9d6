import type { SessionRecord } from "../../gateway/session-record.js";
import type { Message } from "../../renderers/index.js";
import * as f from "../../wire/fields/index.js";
import { isRecord } from "../../wire/index.js";
import type { ItemSource } from "../environments/replay.js";
import type { Rewarded, RewardResult } from "../environments/reward.js";

/** An episode as an agent receives it: its problem, and the address and key of the model. */
export interface AgentCall<P = unknown> {
  readonly problem: P;
  /** For clients of OpenAI's API, with `/v1`. */
  readonly baseURL: string;
  /** For clients of Anthropic's API, without `/v1`. */
  readonly anthropicBaseURL: string;
  /** Reaches only the session of this episode. */
  readonly apiKey: string;
  /** Aborted when the episode is over, for example at its time limit. */
  readonly signal: AbortSignal;
}

/** An agent as a function of one episode. What it returns is the episode's `output`. */
export type AgentFunction<P = unknown> = (call: AgentCall<P>) => unknown;

/**
 * An agent as a program, started once for each episode. Its environment has OPENAI_BASE_URL, OPENAI_API_KEY,
 * ANTHROPIC_BASE_URL, ANTHROPIC_AUTH_TOKEN, TINKERTS_FOLDER (a folder for this episode) and TINKERTS_PROBLEM; the
 * problem is also written to its standard input: a text unchanged, anything else as JSON.
 */
export interface AgentCommand {
  /** The program: a name on the PATH, or a path. */
  readonly command: string;
  /** Its arguments. Names of files in the current folder become absolute paths, unless `cwd` is given. */
  readonly args?: readonly string[] | undefined;
  /** Folder that it runs in. Default: the folder of the episode. */
  readonly cwd?: string | undefined;
  /** Added to its environment; undefined removes a variable. It inherits the others, without Tinker's keys. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
}

/** A program that speaks OpenAI's or Anthropic's API: a function, or a command. */
export type Agent<P = unknown> = AgentFunction<P> | AgentCommand;

/** A tool call in an episode, with its result. */
export interface AgentToolResult {
  readonly name: string;
  /** The arguments as JSON, as the model wrote them. */
  readonly arguments: string;
  /** Undefined where the agent sent no result to the model. */
  readonly result: string | undefined;
}

/**
 * Why an agent's episode ended: it returned or exited with 0, it threw or exited otherwise, it never called the model, or
 * a limit ended it.
 */
export type AgentEnd =
  | "completed"
  | "agent_failed"
  | "no_calls"
  | "rollout_timeout"
  | "max_turns"
  | "max_sampled_tokens";

/** A finished episode of an agent, as its reward sees it. */
export interface AgentEpisode<P = unknown> {
  readonly problem: P;
  /** The last answer of the model in the main conversation, without thoughts. */
  readonly text: string;
  /** The main conversation: what the agent sent and the model answered. */
  readonly messages: readonly Message[];
  /** The tool calls of the main conversation, with their results. */
  readonly toolResults: readonly AgentToolResult[];
  /** Every conversation of the episode, with forks, tokens and counts. */
  readonly session: SessionRecord;
  /** The value that the agent function returned, or the standard output of the command (the last MiB). */
  readonly output: unknown;
  /** Standard error of the command (the last MiB); empty for a function. */
  readonly stderr: string;
  /** The command's exit code; null if a signal ended it, undefined for a function. */
  readonly exitCode: number | null | undefined;
  /** The error that the agent function threw. */
  readonly error: unknown;
  readonly end: AgentEnd;
  /** Folder of the command in this episode; undefined for a function. It is removed after the reward. */
  readonly folder: string | undefined;
  /** The files in the folder, as paths within it, at most 10,000. */
  files(): Promise<readonly string[]>;
  /** The text of a file in the folder, up to 16 MiB; undefined if there is none. */
  readFile(path: string): Promise<string | undefined>;
  /** Aborted when the reward takes too long, or the run ends. */
  readonly signal: AbortSignal;
}

/** The reward of an agent's episode. */
export type AgentReward<P = unknown> = (episode: AgentEpisode<P>) => RewardResult | Promise<RewardResult>;

/** A reward that compares the episodes of a group; `rulerReward` makes one. */
export interface AgentGroupReward<P = unknown> {
  /** Returns the reward of each episode, in their order. */
  rewardGroup(
    episodes: readonly AgentEpisode<P>[],
    context: { readonly signal: AbortSignal },
  ): readonly Rewarded[] | Promise<readonly Rewarded[]>;
}

/** An agent, its problems and the reward of its episodes. */
export interface AgentOptions<P = unknown> {
  /** The agent: a function of `{ problem, baseURL, apiKey, signal }`, or a command. */
  readonly agent: Agent<P>;
  /**
   * Problems, in any form that the agent understands. An array is shuffled in each epoch; another iterable keeps its
   * order; a function is called with the problem's number.
   */
  readonly problems: ItemSource<P>;
  /** Scores an episode, alone or compared with its group. */
  readonly reward: AgentReward<P> | AgentGroupReward<P>;
  /** Tags under which metrics are also counted. */
  readonly tags?: readonly string[] | ((problem: P) => readonly string[]) | undefined;
  readonly environments?: undefined;
  readonly format?: undefined;
  readonly formatWeight?: undefined;
}

const COMMAND = f.message({
  command: f.text,
  args: f.optional(f.list(f.anyText)),
  cwd: f.optional(f.text),
  env: f.optional(f.value<NonNullable<AgentCommand["env"]>>("an object of texts by name", isEnvironment)),
} satisfies f.FieldsOf<AgentCommand>);

/** The option row of an agent. */
export const AGENT_OPTION = f.option(
  f.optional(
    f.customField<Agent<never>>((given, path) => {
      if (typeof given === "function") return given as AgentFunction<never>;
      if (!isRecord(given))
        throw f.wrongValue(path, "a function of { problem, baseURL, apiKey, signal }, or { command }", given);
      return COMMAND.check(given, path);
    }),
  ),
  "program that is trained: a function, or { command, args }",
);

/** Whether a reward compares the episodes of a group. */
export function isGroupReward(reward: unknown): reward is AgentGroupReward<never> {
  return isRecord(reward) && typeof reward["rewardGroup"] === "function";
}

function isEnvironment(given: unknown): boolean {
  return (
    isRecord(given) && Object.values(given).every((value) => value === undefined || typeof value === "string")
  );
}
