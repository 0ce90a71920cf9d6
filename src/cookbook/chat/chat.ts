import { isUserError, messageOf } from "../../errors.js";
import { type Message, type ToolDeclaration, textOf } from "../../renderers/messages.js";
import { type PreparedAnswer, prepareAnswer } from "../../renderers/prepare-answer.js";
import type { ParseTermination, Renderer } from "../../renderers/renderer.js";
import { samplerSource, wholeSamples } from "../../renderers/token-source.js";
import * as f from "../../wire/fields/index.js";
import {
  type ModelInput,
  type SampledSequence,
  type SamplingParams,
  type StopReason,
  samplingParams,
  type TopkLogprobs,
} from "../../wire/index.js";
import { type ChatSampler, rendererOf } from "./renderer-of.js";

/**
 * How a model answers. Without `maxTokens` an answer may fill the rest of the context; `stop` replaces the renderer's
 * own stop sequences.
 */
export interface ChatOptions extends SamplingParams {
  /** Renderer of the conversation, or its name. Default: the one that fits the sampler's base model. */
  readonly renderer?: Renderer | string | undefined;
  /** Functions the model may call. */
  readonly tools?: readonly ToolDeclaration[] | undefined;
  /** Beginning of the answer, which the model continues; the message includes it. */
  readonly prefill?: string | undefined;
  /** Number of independent answers. Default: 1. */
  readonly numSamples?: number | undefined;
  /** How many of the likeliest tokens are reported at each place of an answer. Default: 0. */
  readonly topLogprobs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** One answer of a model. */
export interface ChatSample {
  /** The message, ready to be added to the conversation. */
  readonly message: Message;
  /** The message's text, without thoughts. */
  readonly text: string;
  /** Sampled tokens: the message without its prefill, with the stop sequence. */
  readonly tokens: Int32Array;
  readonly logprobs: Float32Array | undefined;
  /** The likeliest tokens at each place with their logprobs, best first, if they were asked for. */
  readonly topLogprobs?: TopkLogprobs | undefined;
  readonly stopReason: StopReason;
  /** Whether the answer ended as its format requires; an answer that was cut off is `malformed`. */
  readonly termination: ParseTermination;
}

/** Result of `chat`: the first answer, and all of them. */
export interface ChatAnswer extends ChatSample {
  /** Prompt that the model read. */
  readonly prompt: ModelInput;
  /** All answers, `numSamples` of them; the first is this one. */
  readonly samples: readonly ChatSample[];
}

/** The option table for how a model answers. */
export const CHAT_OPTIONS = {
  renderer: f.option(f.optional(f.opaque as f.Field<Renderer | string>), "chat format of the conversation", {
    otherwise: "recommended for the model",
  }),
  tools: f.option(
    f.optional(f.opaque as f.Field<readonly ToolDeclaration[]>),
    "functions the model may call",
  ),
  prefill: f.option(f.optional(f.anyText), "beginning of the answer, which the model continues"),
  numSamples: f.option(f.withDefault(f.positiveInteger, 1), "independent answers"),
  topLogprobs: f.option(f.withDefault(f.nonNegativeInteger, 0), "likeliest tokens reported at each place"),
  signal: f.option(f.optional(f.abortSignal), "ends the call"),
  maxTokens: f.option(samplingParams.shape.maxTokens, "maximum number of tokens to generate", {
    otherwise: "what is left of the context",
  }),
  temperature: f.option(
    samplingParams.shape.temperature,
    "sampling temperature; 0 always takes the likeliest token",
  ),
  topK: f.option(samplingParams.shape.topK, "sample from the k likeliest tokens; -1: from all"),
  topP: f.option(samplingParams.shape.topP, "sample from the likeliest tokens up to this total probability"),
  seed: f.option(samplingParams.shape.seed, "seed of the samples"),
  stop: f.option(samplingParams.shape.stop, "texts or tokens that end an answer", {
    otherwise: "those of the renderer",
  }),
} satisfies f.OptionsOf<ChatOptions>;

const TABLE = f.optionTable(CHAT_OPTIONS);

/** Lets a model answer a conversation: renders it, samples, and parses the answer into a message. */
export async function chat(
  sampler: ChatSampler,
  messages: readonly Message[],
  options: ChatOptions = {},
): Promise<ChatAnswer> {
  const prepared = await prepareChat(sampler, messages, options);
  const { sequences } = await wholeSamples(samplerSource(sampler), prepared, settingsOf(options));
  const samples = sequences.map((sequence) => sampleOf(prepared, sequence));
  return { ...samples[0]!, prompt: prepared.prompt, samples };
}

export async function prepareChat(
  sampler: ChatSampler,
  messages: readonly Message[],
  options: ChatOptions,
): Promise<PreparedAnswer> {
  checkMessages(messages);
  TABLE.check(options, "chat");
  const { renderer: given, tools, prefill, stop, signal } = options;
  const renderer = typeof given === "object" ? given : await rendererOf(sampler, given);
  signal?.throwIfAborted();
  const prepared = prepareAnswer(renderer, { messages, tools, prefill });
  return stop === undefined ? prepared : { ...prepared, stop: typeof stop === "string" ? [stop] : stop };
}

/** Sampling settings of a chat's answers. */
export function settingsOf(options: ChatOptions) {
  const { numSamples, topLogprobs, maxTokens, temperature, topK, topP, seed, signal } = options;
  return { numSamples, topLogprobs, maxTokens, temperature, topK, topP, seed, signal };
}

/** Parses one answer. */
export function sampleOf(
  prepared: PreparedAnswer,
  { tokens, logprobs, topkLogprobs, stopReason }: SampledSequence,
): ChatSample {
  const { message, termination } = prepared.read(tokens);
  const text = textOf(message);
  return {
    ...{ message, text, tokens, logprobs: logprobs ?? undefined, stopReason, termination },
    ...(topkLogprobs && { topLogprobs: topkLogprobs }),
  };
}

/** Whether a server refused a request because the conversation does not fit into the model's context. */
export function isContextOverflow(error: unknown): boolean {
  return isUserError(error) && CONTEXT_OVERFLOW.test(messageOf(error));
}

/** Servers report it only in words: the built-in backend, the hosted service and vLLM each in their own. */
const CONTEXT_OVERFLOW =
  /reads at most \d+|leave room for|context (?:window|length)|context_length|too long for/i;

function checkMessages(messages: readonly Message[]): void {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw f.wrongValue("messages", "a list of at least one message", messages);
  }
  for (const [index, message] of messages.entries()) {
    const field = `messages[${index}]`;
    if (typeof message?.role !== "string" || message.role === "") {
      throw f.wrongValue(`${field}.role`, "the name of a role", message?.role);
    }
    if (typeof message.content !== "string" && !Array.isArray(message.content)) {
      throw f.wrongValue(`${field}.content`, "a text or a list of parts", message.content);
    }
  }
}
