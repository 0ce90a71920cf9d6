import {
  classifyParseFailure,
  type Message,
  type Renderer,
  type ToolCall,
  textOf,
} from "../../renderers/index.js";
import { withTools } from "../../renderers/prepare-answer.js";
import { throwIfAborted } from "../../transport/index.js";
import * as f from "../../wire/fields/index.js";
import type { Environment, EpisodeEnd, RolloutContext } from "./environment.js";
import {
  CONVERSATION_RULES,
  type ConversationRules,
  checkedEnvironment,
  MESSAGE_ENVIRONMENT_OPTIONS,
  type MessageAnswer,
  type MessageEnvironment,
  type MessageStep,
} from "./message-environment.js";
import { askReward, type Rewarded, type RewardResult, readReward } from "./reward.js";
import { runToolCall, type Tool } from "./tool.js";

/** A finished episode with tools. */
export interface ToolEpisode {
  /** The conversation; without its first messages, if the rollout's `TerminationPolicy` asks for that. */
  readonly messages: readonly Message[];
  /** Text of the last answer, without thoughts. */
  readonly text: string;
  readonly end: EpisodeEnd;
  /** Aborted when the rollout ends, or the time for grading is over. */
  readonly signal: AbortSignal;
}

/** A task that the model does with tools. */
export interface ToolEnvironmentOptions extends ConversationRules {
  readonly tools: readonly Tool[];
  /** The conversation that the model answers first. */
  readonly messages: readonly Message[];
  /** Reward function, called once at the end. */
  readonly reward: (episode: ToolEpisode) => RewardResult | Promise<RewardResult>;
  readonly renderer: Renderer;
  /** Most answers of the model. Default: the rollout's limit, else 5. */
  readonly maxTurns?: number | undefined;
  /** Maximum number of calls; a turn with more runs only the first ones. Default: the rollout's limit. */
  readonly maxToolCalls?: number | undefined;
  /** Whether the tools are declared before the conversation. Default: yes; a model that was trained on them may not need it. */
  readonly declaresTools?: boolean | undefined;
  /** Reward of an answer that cannot be parsed, also of a turn in which every call is broken. Default: -0.1. */
  readonly parseFailureReward?: number | undefined;
  /** Releases the tools' resources. Called once after the episode, however it ended. */
  readonly close?: (() => void | Promise<void>) | undefined;
}

const MAX_TURNS = 5;
const RETRY_MESSAGE = "Your last message could not be read.\nError: {details}";

/** The option table of `toolEnvironment`. */
export const TOOL_ENVIRONMENT_OPTIONS = f.optionTable({
  ...CONVERSATION_RULES,
  parseFailureReward: f.defaulting(CONVERSATION_RULES.parseFailureReward, -0.1),
  renderer: MESSAGE_ENVIRONMENT_OPTIONS.fields.renderer,
  tools: f.option(f.list(f.opaque as f.Field<Tool>), "functions the model may call"),
  messages: f.option(
    f.list(f.opaque as f.Field<Message>, { least: 1 }),
    "conversation that the model answers first",
  ),
  reward: f.option(
    f.functionOf<ToolEnvironmentOptions["reward"]>("a function of an episode"),
    "how good an episode is",
  ),
  maxTurns: f.option(f.optional(f.positiveInteger), "answers of the model", {
    otherwise: `the rollout's limit, else ${MAX_TURNS}`,
  }),
  maxToolCalls: f.option(f.optional(f.nonNegativeInteger), "tool calls in all"),
  declaresTools: f.option(f.withDefault(f.boolean, true), "declare the tools before the conversation"),
  close: f.option(
    f.optional(f.functionOf<NonNullable<ToolEnvironmentOptions["close"]>>()),
    "gives back what the tools took",
  ),
} satisfies f.OptionsOf<ToolEnvironmentOptions>);
type CheckedOptions = ReturnType<typeof TOOL_ENVIRONMENT_OPTIONS.check>;

/** A model with tools: the episode ends when it answers without a call, when a tool ends it, or at a limit. */
export function toolEnvironment(given: ToolEnvironmentOptions): Environment {
  const options = TOOL_ENVIRONMENT_OPTIONS.check(given, "toolEnvironment");
  return checkedEnvironment({ ...options, environment: new ToolConversation(options) });
}

/** State of the current turn. */
interface TurnNotes {
  readonly metrics: Record<string, number>;
  readonly logs: Record<string, string>;
}

class ToolConversation implements MessageEnvironment {
  readonly #options: CheckedOptions;
  readonly #tools: ReadonlyMap<string, Tool>;
  #context!: RolloutContext;
  #numFirstMessages = 0;
  #numTurns = 0;
  #numCalls = 0;
  #numErrorsInARow = 0;

  constructor(options: CheckedOptions) {
    this.#options = options;
    this.#tools = toolsByName(options.tools);
  }

  start(context: RolloutContext): readonly Message[] {
    const { messages, tools, renderer, declaresTools } = this.#options;
    const first = declaresTools ? withTools(renderer, messages, tools) : messages;
    this.#context = context;
    this.#numFirstMessages = first.length;
    return first;
  }

  async step({ message, messages, signal }: MessageAnswer): Promise<MessageStep> {
    const { toolCalls = [], unparsedToolCalls = [] } = message;
    const notes: TurnNotes = { metrics: {}, logs: {} };
    const text = textOf(message);
    if (text !== "") notes.logs["assistant_content"] = text;
    if (unparsedToolCalls.length > 0) {
      notes.metrics["parse_error"] = 1;
      notes.logs["parse_errors"] = unparsedToolCalls.map(({ error }) => error).join("\n");
    }
    this.#numTurns += 1;
    if (unparsedToolCalls.length > 0 && toolCalls.length === 0) return this.#brokenCalls(message, notes);
    this.#numErrorsInARow = 0;
    const allowed = this.#allowed(toolCalls, notes);
    const results = await this.#run(allowed, signal);
    for (const [index, call] of allowed.entries()) {
      notes.logs[`tool_call_${index}`] = `${call.name}(${call.arguments})`;
      notes.logs[`tool_result_${index}`] = shownText(results[index]!.message);
    }
    const isToolStop = results.some(({ endsEpisode }) => endsEpisode);
    const isCapped = allowed.length < toolCalls.length;
    const isLastTurn = this.#numTurns >= this.#maxTurns && toolCalls.length > 0;
    if (isLastTurn) notes.metrics["max_turns"] = 1;
    if (isToolStop) notes.metrics["tool_stopped"] = 1;
    if (isCapped) notes.metrics["max_tool_calls"] = 1;
    const answers = results.map((result) => result.message);
    const end = endOf({ isCompleted: toolCalls.length === 0, isToolStop, isCapped, isLastTurn });
    if (end === undefined) return { reward: 0, isDone: false, messages: answers, ...notes };
    const { reward, metrics, logs } = await this.#grade([...messages, ...answers], text, end);
    return {
      reward,
      isDone: true,
      messages: answers,
      end,
      metrics: { ...notes.metrics, ...metrics },
      logs: { ...notes.logs, ...logs },
    };
  }

  close(): void | Promise<void> {
    return this.#options.close?.();
  }

  get #maxTurns(): number {
    const limit = this.#context.limits.maxTurns;
    // At the rollout's own limit, the episode would end without a grade.
    return Math.min(this.#options.maxTurns ?? limit ?? MAX_TURNS, limit ?? Number.POSITIVE_INFINITY);
  }

  /** Handles a turn in which every call is broken: a policy may let the model correct them. */
  #brokenCalls(message: Message, { metrics, logs }: TurnNotes): MessageStep {
    const { parseFailureReward, endsOnParseFailure } = this.#options;
    const { parseErrors } = this.#context;
    const isLastTurn = this.#numTurns >= this.#maxTurns;
    this.#numErrorsInARow += 1;
    if (parseErrors === undefined) {
      const isDone = endsOnParseFailure || isLastTurn;
      if (isLastTurn) metrics["max_turns"] = 1;
      return { reward: parseFailureReward, isDone, ...(isDone && { end: "parse_error" }), metrics, logs };
    }
    const { maxConsecutive = 0, retryMessage = RETRY_MESSAGE, penalty = 0, finalReward = 0 } = parseErrors;
    const { isMasked } = parseErrors;
    logs["parse_failure_kind"] = "content";
    if (this.#numErrorsInARow > maxConsecutive || isLastTurn) {
      if (isLastTurn) metrics["max_turns"] = 1;
      return { reward: finalReward, isDone: true, end: "parse_error", isMasked, metrics, logs };
    }
    const { detail } = classifyParseFailure({ message, termination: "stop_sequence" })!;
    const content = retryMessage.replaceAll("{details}", () => detail);
    logs["parse_error_retry"] =
      `error ${this.#numErrorsInARow} in a row, of ${maxConsecutive} that may be mended`;
    return {
      reward: 0 - penalty,
      isDone: false,
      isMasked,
      messages: [{ role: "user", content }],
      metrics,
      logs,
    };
  }

  /** The calls that are within the limit. */
  #allowed(calls: readonly ToolCall[], { logs }: TurnNotes): readonly ToolCall[] {
    const limits = [this.#options.maxToolCalls, this.#context.limits.maxToolCalls];
    const most = Math.min(...limits.map((limit) => limit ?? Number.POSITIVE_INFINITY));
    const allowed = calls.slice(0, Math.max(most - this.#numCalls, 0));
    this.#numCalls += allowed.length;
    const numDropped = calls.length - allowed.length;
    if (numDropped > 0) logs["tool_calls_dropped"] = `${numDropped}, since there may be ${most} in all`;
    return allowed;
  }

  async #run(
    calls: readonly ToolCall[],
    signal: AbortSignal,
  ): Promise<Awaited<ReturnType<typeof runToolCall>>[]> {
    const run = (call: ToolCall) => runToolCall(this.#tools, call, signal);
    if (this.#context.toolExecution === "parallel") return Promise.all(calls.map(run));
    const results = [];
    for (const call of calls) {
      throwIfAborted(signal, "The rollout");
      results.push(await run(call));
    }
    return results;
  }

  async #grade(messages: readonly Message[], text: string, end: EpisodeEnd): Promise<Rewarded> {
    const { termination, signal } = this.#context;
    const { gradesWholeConversation = termination === undefined, graderTimeoutMs } = termination ?? {};
    const seen = gradesWholeConversation ? messages : messages.slice(this.#numFirstMessages);
    return await askReward(
      "reward",
      { conversation: messages.map(({ role, content }) => ({ role, content })), answer: text, end },
      { timeoutMs: graderTimeoutMs, signal },
      async (limited) =>
        readReward(await this.#options.reward({ messages: seen, text, end, signal: limited })),
    );
  }
}

/** The most important of several reasons. */
function endOf(turn: {
  readonly isCompleted: boolean;
  readonly isToolStop: boolean;
  readonly isCapped: boolean;
  readonly isLastTurn: boolean;
}): EpisodeEnd | undefined {
  if (turn.isCompleted) return "completed";
  if (turn.isToolStop) return "tool_stopped";
  if (turn.isCapped) return "max_tool_calls";
  return turn.isLastTurn ? "max_turns" : undefined;
}

function toolsByName(tools: readonly Tool[]): ReadonlyMap<string, Tool> {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  if (byName.size < tools.length) {
    const names = tools.map(({ name }) => name);
    throw f.wrongField("tools", `must have different names, got ${names.join(", ")}`);
  }
  return byName;
}

function shownText({ content }: Message): string {
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? part.text : `<${part.type}>`)).join("");
}
