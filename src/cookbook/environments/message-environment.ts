import {
  beginPrompt,
  type ConversationPrompt,
  classifyParseFailure,
  continuePrompt,
  type Message,
  type ParseFailure,
  type Renderer,
} from "../../renderers/index.js";
import { untilAborted } from "../../transport/index.js";
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
  /** The whole conversation, which ends with it. */
  readonly messages: readonly Message[];
  /** Aborted when the rollout is over. */
  readonly signal: AbortSignal;
}

/** What an environment makes of a message. */
export interface MessageStep {
  readonly reward: number;
  readonly isDone: boolean;
  /** What the model hears next, behind its answer. */
  readonly messages?: readonly Message[] | undefined;
  /** The whole conversation, where the environment rewrites what was said: what was sampled so far is then read anew. */
  readonly conversation?: readonly Message[] | undefined;
  /** What ends the next answer. Default: the renderer's stop signs. */
  readonly stop?: Observation["stop"] | undefined;
  readonly end?: EpisodeEnd | (string & {}) | undefined;
  readonly isMasked?: boolean | undefined;
  readonly metrics?: Metrics | undefined;
  readonly logs?: Logs | undefined;
}

/** A world that is talked to: messages in, messages out. The conversation itself is kept for it. */
export interface MessageEnvironment {
  /** What the model answers first. Called once. */
  start(context: RolloutContext): readonly Message[] | Promise<readonly Message[]>;
  step(answer: MessageAnswer): MessageStep | Promise<MessageStep>;
  /** Called once however the episode ended. */
  close?(): void | Promise<void>;
}

/** How answers that cannot be read, and conversations that grow too long, are dealt with. */
export interface ConversationRules {
  /** The reward of an answer without its stop sign, which ends the episode. Default: -1. A `ParseErrorPolicy` goes first. */
  readonly parseFailureReward?: number | undefined;
  /** Whether such an answer ends the episode. Default: yes; otherwise it stays as the text it is, and the model goes on. */
  readonly endsOnParseFailure?: boolean | undefined;
  /** The reward of what does not fit, and of an answer that was cut off and ends the episode. Default: -0.1. */
  readonly overflowReward?: number | undefined;
  /** A conversation that has no room within these for `maxAnswerTokens` more ends as `context_overflow`. */
  readonly maxContextTokens?: number | undefined;
  /** Room that is kept for an answer. Default: 0. */
  readonly maxAnswerTokens?: number | undefined;
  /** Whether an answer that was cut off ends the episode. Default: yes, unless the rollout's limits count tokens. */
  readonly endsOnLength?: boolean | undefined;
}

/** What an environment of messages becomes one of tokens with. */
export interface MessageEnvironmentOptions extends ConversationRules {
  readonly environment: MessageEnvironment;
  readonly renderer: Renderer;
}

const PARSE_FAILURE_REWARD = -1;
const OVERFLOW_REWARD = -0.1;

/**
 * An environment of messages as one of tokens. Each prompt is the last one, exactly the tokens that were sampled, and the
 * new messages, wherever the renderer's format writes an answer of the past as it was produced; else it is written anew.
 */
export function messageEnvironment(options: MessageEnvironmentOptions): Environment {
  return new Conversation(options);
}

/** The last prompt that was answered, and its answer. */
interface Answered {
  readonly prompt: ConversationPrompt;
  readonly tokens: Int32Array;
}

class Conversation implements Environment {
  readonly #options: MessageEnvironmentOptions;
  #context!: RolloutContext;
  /** What the model reads now. */
  #prompt!: ConversationPrompt;
  #answered: Answered | undefined;
  #messages: readonly Message[] = [];

  constructor(options: MessageEnvironmentOptions) {
    this.#options = options;
  }

  async start(context: RolloutContext): Promise<Observation | PromptOverflow> {
    const { environment, renderer } = this.#options;
    this.#context = context;
    this.#messages = await this.#untilOver(() => environment.start(context));
    this.#prompt = beginPrompt(renderer, this.#messages);
    const tooLong = this.#tooLong();
    if (tooLong === undefined) return this.#observation();
    return {
      overflow: true,
      reward: this.#overflowReward,
      metrics: { max_tokens_reached: 1 },
      logs: { initial_observation_overflow: tooLong },
    };
  }

  async step({ tokens, stopReason }: Action): Promise<StepResult> {
    const parsed = this.#options.renderer.parseResponse(tokens);
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
    else this.#beginAnew(conversation);
    const tooLong = step.isDone ? undefined : this.#overflow(step);
    return tooLong ?? { ...step, next: this.#observation(stop) };
  }

  async addMessages(messages: readonly Message[]): Promise<Observation> {
    const all = [...this.#messages, ...messages];
    if (this.#answered === undefined) this.#beginAnew(all);
    else this.#render(all, this.#answered);
    return this.#observation();
  }

  messages(): readonly Message[] {
    return this.#messages;
  }

  close(): void | Promise<void> {
    return this.#options.environment.close?.();
  }

  /** An answer that the sampler cut off: no tool is run and nothing is asked of the environment. */
  #cutOff(tokens: Int32Array, message: Message): StepResult {
    const { endsOnLength = !countsTokens(this.#context.limits) } = this.#options;
    if (endsOnLength) {
      this.#messages = [...this.#messages, message];
      const metrics = { max_tokens_reached: 1 };
      return { reward: this.#overflowReward, isDone: true, end: "max_tokens", metrics };
    }
    const logs = { truncated_turn: "the answer was cut off; it is kept, and the episode goes on" };
    return this.#keepAsText(tokens, message, { reward: 0, isDone: false, logs });
  }

  /** An answer without its stop sign: where it ends is not known. */
  #unreadable(tokens: Int32Array, message: Message, failure: ParseFailure): StepResult {
    const { parseErrors } = this.#context;
    const { parseFailureReward = PARSE_FAILURE_REWARD, endsOnParseFailure = true } = this.#options;
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
      reward: this.#overflowReward,
      isDone: true,
      end: "context_overflow",
      metrics: { ...metrics, context_overflow: 1 },
      logs,
    };
  }

  get #overflowReward(): number {
    return this.#options.overflowReward ?? OVERFLOW_REWARD;
  }

  #tooLong(): string | undefined {
    const { maxContextTokens = Number.POSITIVE_INFINITY, maxAnswerTokens = 0 } = this.#options;
    const { length } = this.#prompt.prompt;
    if (length + maxAnswerTokens <= maxContextTokens) return undefined;
    return (
      `the prompt has ${length} tokens, which with ${maxAnswerTokens} for an answer are more than ` +
      `maxContextTokens, ${maxContextTokens}`
    );
  }

  #goOn(tokens: Int32Array, messages: readonly Message[]): void {
    this.#render(messages, { prompt: this.#prompt, tokens });
  }

  #render(messages: readonly Message[], answered: Answered): void {
    this.#answered = answered;
    this.#messages = messages;
    this.#prompt = continuePrompt(this.#options.renderer, answered.prompt, answered.tokens, messages);
  }

  #beginAnew(messages: readonly Message[]): void {
    this.#answered = undefined;
    this.#messages = messages;
    this.#prompt = beginPrompt(this.#options.renderer, messages);
  }

  #observation(stop: Observation["stop"] = this.#options.renderer.stopSequences): Observation {
    return { prompt: this.#prompt.prompt, stop };
  }

  #untilOver<T>(work: (signal: AbortSignal) => T | Promise<T>): Promise<T> {
    const { signal } = this.#context;
    return untilAborted(Promise.resolve(signal).then(work), signal);
  }
}

/** Whether the rollout itself ends what uses too many tokens. */
function countsTokens({ maxTrajectoryTokens, maxSampledTokens, maxTurnTokens }: RolloutLimits): boolean {
  return [maxTrajectoryTokens, maxSampledTokens, maxTurnTokens].some((limit) => limit !== undefined);
}
