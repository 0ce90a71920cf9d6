import {
  classifyParseFailure,
  type Message,
  type ParseFailure,
  type Renderer,
} from "../../renderers/index.js";
import { type PreparedAnswer, prepareAnswer } from "../../renderers/prepare-answer.js";
import { untilAborted } from "../../transport/index.js";
import * as f from "../../wire/fields/index.js";
import type {
  Action,
  Environment,
  EpisodeEnd,
  Logs,
  Metrics,
  Observation,
  PromptOverflow,
  RolloutContext,
  StepResult,
} from "./environment.js";
import type { RolloutLimits } from "./limits.js";
import { readReward } from "./reward.js";

/** An answer of the model as a message. */
export interface MessageAnswer {
  readonly message: Message;
  /** The whole conversation, including this answer. */
  readonly messages: readonly Message[];
  /** Aborted when the rollout ends. */
  readonly signal: AbortSignal;
}

/** Response of an environment to a message: reward, and the next messages. */
export interface MessageStep {
  readonly reward: number;
  readonly isDone: boolean;
  /** Messages that follow the model's answer. */
  readonly messages?: readonly Message[] | undefined;
  /** New conversation, if the environment rewrites it; the model then reads all of it as new tokens. */
  readonly conversation?: readonly Message[] | undefined;
  /** Stop sequences of the next answer. Default: the renderer's. */
  readonly stop?: Observation["stop"] | undefined;
  readonly end?: EpisodeEnd | (string & {}) | undefined;
  readonly isMasked?: boolean | undefined;
  readonly metrics?: Metrics | undefined;
  readonly logs?: Logs | undefined;
}

/** An environment of messages: messages in, messages out. The conversation is kept for it. */
export interface MessageEnvironment {
  /** Returns the first messages that the model answers; called once. */
  start(context: RolloutContext): readonly Message[] | Promise<readonly Message[]>;
  step(answer: MessageAnswer): MessageStep | Promise<MessageStep>;
  /** Called once after the episode, however it ended. */
  close?(): void | Promise<void>;
}

/** Handling of answers that cannot be parsed, and of conversations that grow too long. */
export interface ConversationRules {
  /**
   * Reward of an answer without its stop sequence, which ends the episode. Default: -1. A `ParseErrorPolicy` overrides
   * it.
   */
  readonly parseFailureReward?: number | undefined;
  /**
   * Whether an answer that cannot be parsed ends the episode. Default: yes; otherwise it stays as text, and the episode
   * continues.
   */
  readonly endsOnParseFailure?: boolean | undefined;
  /** Reward when the conversation does not fit, or when an answer is cut off and ends the episode. Default: -0.1. */
  readonly overflowReward?: number | undefined;
  /**
   * Most tokens of a conversation, including `maxAnswerTokens` for the answer; a longer one ends as `context_overflow`.
   */
  readonly maxContextTokens?: number | undefined;
  /** Tokens reserved for an answer. Default: 0. */
  readonly maxAnswerTokens?: number | undefined;
  /** Whether an answer that was cut off ends the episode. Default: yes, unless the rollout's limits count tokens. */
  readonly endsOnLength?: boolean | undefined;
}

/** Options for turning an environment of messages into one of tokens. */
export interface MessageEnvironmentOptions extends ConversationRules {
  readonly environment: MessageEnvironment;
  readonly renderer: Renderer;
}

/** The option table for answers that cannot be parsed and for long conversations. */
export const CONVERSATION_RULES = {
  parseFailureReward: f.option(f.withDefault(f.number, -1), "reward of an answer without its stop sign"),
  endsOnParseFailure: f.option(f.withDefault(f.boolean, true), "end the episode at such an answer"),
  overflowReward: f.option(f.withDefault(f.number, -0.1), "reward of a conversation that does not fit"),
  maxContextTokens: f.option(
    f.optional(f.positiveInteger),
    "tokens of a conversation with the room for an answer",
  ),
  maxAnswerTokens: f.option(f.withDefault(f.nonNegativeInteger, 0), "room that is kept for an answer"),
  endsOnLength: f.option(f.optional(f.boolean), "end the episode at an answer that was cut off", {
    otherwise: "yes, unless the limits of the rollout count tokens",
  }),
} satisfies f.OptionsOf<ConversationRules>;
/** The option table of `messageEnvironment`. */
export const MESSAGE_ENVIRONMENT_OPTIONS = f.optionTable({
  ...CONVERSATION_RULES,
  environment: f.option(
    f.having<MessageEnvironment>("an environment of messages", "step"),
    "environment of messages",
  ),
  renderer: f.option(f.having<Renderer>("a renderer", "buildPrompt"), "chat format of the conversation"),
} satisfies f.OptionsOf<MessageEnvironmentOptions>);
type CheckedOptions = ReturnType<typeof MESSAGE_ENVIRONMENT_OPTIONS.check>;

/**
 * Turns an environment of messages into one of tokens. Each prompt is the last one, then exactly the sampled tokens,
 * then the new messages, if the renderer's format repeats earlier answers unchanged; otherwise the conversation is
 * rendered again.
 */
export function messageEnvironment(options: MessageEnvironmentOptions): Environment {
  return checkedEnvironment(MESSAGE_ENVIRONMENT_OPTIONS.check(options, "messageEnvironment"));
}

/** Like `messageEnvironment`, with options that are already checked. */
export function checkedEnvironment(options: CheckedOptions): Environment {
  return new Conversation(options);
}

/** The last answered prompt and its answer. */
interface Answered {
  readonly prepared: PreparedAnswer;
  readonly tokens: Int32Array;
}

class Conversation implements Environment {
  readonly #options: CheckedOptions;
  #context!: RolloutContext;
  /** The current prompt. */
  #prepared!: PreparedAnswer;
  #answered: Answered | undefined;
  #messages: readonly Message[] = [];

  constructor(options: CheckedOptions) {
    this.#options = options;
  }

  async start(context: RolloutContext): Promise<Observation | PromptOverflow> {
    const { environment } = this.#options;
    this.#context = context;
    this.#render(await this.#untilOver(() => environment.start(context)));
    const tooLong = this.#tooLong();
    if (tooLong === undefined) return this.#observation();
    return {
      overflow: true,
      reward: this.#options.overflowReward,
      metrics: { max_tokens_reached: 1 },
      logs: { initial_observation_overflow: tooLong },
    };
  }

  async step({ tokens, stopReason }: Action): Promise<StepResult> {
    const parsed = this.#prepared.read(tokens);
    if (stopReason === "length") return this.#cutOff(tokens, parsed.message);
    const failure = classifyParseFailure(parsed);
    if (failure?.kind === "structural") return this.#unreadable(tokens, parsed.message, failure);
    const { environment } = this.#options;
    const answer = { message: parsed.message, messages: [...this.#messages, parsed.message] };
    const {
      messages = [],
      conversation,
      stop,
      ...step
    } = await this.#untilOver((signal) => environment.step({ ...answer, signal }));
    readReward(step, "step");
    if (conversation === undefined) this.#goOn(tokens, [...answer.messages, ...messages]);
    else this.#render(conversation);
    const tooLong = step.isDone ? undefined : this.#overflow(step);
    return tooLong ?? { ...step, next: this.#observation(stop) };
  }

  async addMessages(messages: readonly Message[]): Promise<Observation> {
    this.#render([...this.#messages, ...messages], this.#answered);
    return this.#observation();
  }

  messages(): readonly Message[] {
    return this.#messages;
  }

  close(): void | Promise<void> {
    return this.#options.environment.close?.();
  }

  /** Handles an answer that the sampler cut off: no tool runs and the environment is not asked. */
  #cutOff(tokens: Int32Array, message: Message): StepResult {
    const { endsOnLength = !countsTokens(this.#context.limits) } = this.#options;
    if (endsOnLength) {
      this.#messages = [...this.#messages, message];
      const metrics = { max_tokens_reached: 1 };
      return { reward: this.#options.overflowReward, isDone: true, end: "max_tokens", metrics };
    }
    const logs = { truncated_turn: "the answer was cut off; it is kept, and the episode continues" };
    return this.#keepAsText(tokens, message, { reward: 0, isDone: false, logs });
  }

  /** Handles an answer without its stop sequence: its end is unknown. */
  #unreadable(tokens: Int32Array, message: Message, failure: ParseFailure): StepResult {
    const { parseErrors } = this.#context;
    const { parseFailureReward, endsOnParseFailure } = this.#options;
    const metrics = { parse_error: 1 };
    if (parseErrors === undefined && !endsOnParseFailure) {
      return this.#keepAsText(tokens, message, { reward: parseFailureReward, isDone: false, metrics });
    }
    this.#messages = [...this.#messages, message];
    return {
      reward: parseErrors === undefined ? parseFailureReward : (parseErrors.finalReward ?? 0),
      isDone: true,
      end: "parse_error",
      isMasked: parseErrors?.isMasked,
      metrics,
      ...(parseErrors && {
        logs: { parse_failure_kind: failure.kind, parse_failure_detail: failure.detail },
      }),
    };
  }

  #keepAsText(tokens: Int32Array, message: Message, step: StepResult): StepResult {
    this.#goOn(tokens, [...this.#messages, message]);
    return this.#overflow({}) ?? { ...step, next: this.#observation() };
  }

  #overflow({ metrics, logs }: Pick<StepResult, "metrics" | "logs">): StepResult | undefined {
    if (this.#tooLong() === undefined) return undefined;
    return {
      reward: this.#options.overflowReward,
      isDone: true,
      end: "context_overflow",
      metrics: { ...metrics, context_overflow: 1 },
      logs,
    };
  }

  #tooLong(): string | undefined {
    const { maxContextTokens = Number.POSITIVE_INFINITY, maxAnswerTokens } = this.#options;
    const { length } = this.#prepared.prompt;
    if (length + maxAnswerTokens <= maxContextTokens) return undefined;
    return (
      `the prompt has ${length} tokens, which with ${maxAnswerTokens} for an answer are more than ` +
      `maxContextTokens, ${maxContextTokens}`
    );
  }

  #goOn(tokens: Int32Array, messages: readonly Message[]): void {
    this.#render(messages, { prepared: this.#prepared, tokens });
  }

  /** Continues from the tokens of an answer, or renders the whole conversation if there is none. */
  #render(messages: readonly Message[], answered?: Answered): void {
    this.#answered = answered;
    this.#messages = messages;
    this.#prepared = prepareAnswer(this.#options.renderer, { messages }, answered);
  }

  #observation(stop: Observation["stop"] = this.#prepared.stop): Observation {
    return { prompt: this.#prepared.prompt, stop };
  }

  #untilOver<T>(work: (signal: AbortSignal) => T | Promise<T>): Promise<T> {
    const { signal } = this.#context;
    return untilAborted(Promise.resolve(signal).then(work), signal);
  }
}

/** Whether the rollout itself ends episodes with too many tokens. */
function countsTokens({ maxTrajectoryTokens, maxSampledTokens, maxTurnTokens }: RolloutLimits): boolean {
  return [maxTrajectoryTokens, maxSampledTokens, maxTurnTokens].some((limit) => limit !== undefined);
}
