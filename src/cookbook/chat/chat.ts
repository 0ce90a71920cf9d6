import { isUserError, messageOf } from "../../errors.js";
import { type Message, type ToolDeclaration, textOf } from "../../renderers/messages.js";
import type { ParseTermination, Renderer } from "../../renderers/renderer.js";
import { checkKeys, wrongValue } from "../../wire/fields/check-keys.js";
import type { ModelInput, SampledSequence, SamplingParams, StopReason } from "../../wire/index.js";
import { type ChatSampler, rendererOf } from "./renderer-of.js";

/**
 * How a model answers. Without `maxTokens` an answer may fill what is left of the context; `stop` takes the place of
 * the renderer's own stop signs.
 */
export interface ChatOptions extends SamplingParams {
  /** How the conversation is written, or its name. Default: what fits the sampler's base model. */
  readonly renderer?: Renderer | string | undefined;
  /** Functions the model may call. */
  readonly tools?: readonly ToolDeclaration[] | undefined;
  /** The beginning of the answer, which the model goes on from and the message begins with. */
  readonly prefill?: string | undefined;
  /** How many independent answers. Default: 1. */
  readonly numSamples?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** One answer of a model. */
export interface ChatSample {
  /** Ready to stand in the conversation. */
  readonly message: Message;
  /** The message's text, without thoughts. */
  readonly text: string;
  /** What was sampled: the message without its prefill, with the sign that ended it. */
  readonly tokens: Int32Array;
  readonly logprobs: Float32Array | undefined;
  readonly stopReason: StopReason;
  /** Whether the answer ended as its format wants; one that was cut off is `malformed`. */
  readonly termination: ParseTermination;
}

/** The first answer, and all of them. */
export interface ChatAnswer extends ChatSample {
  /** What the model read. */
  readonly prompt: ModelInput;
  /** As many as `numSamples`; the first is this one. */
  readonly samples: readonly ChatSample[];
}

const OPTION_KEYS: ReadonlySet<string> = new Set([
  "renderer",
  "tools",
  "prefill",
  "numSamples",
  "signal",
  "maxTokens",
  "temperature",
  "topK",
  "topP",
  "seed",
  "stop",
] satisfies (keyof ChatOptions)[]);

/** A conversation that is ready to be sampled, and how its answers are read. */
export interface PreparedChat {
  readonly renderer: Renderer;
  readonly prompt: ModelInput;
  readonly prefillTokens: readonly number[];
  readonly samplingParams: SamplingParams;
  read(sequence: Pick<SampledSequence, "tokens" | "logprobs" | "stopReason">): ChatSample;
}

/** Lets a model answer a conversation: renders it, samples, and reads the answer back as a message. */
export async function chat(
  sampler: ChatSampler,
  messages: readonly Message[],
  options: ChatOptions = {},
): Promise<ChatAnswer> {
  const { prompt, samplingParams, read } = await prepareChat(sampler, messages, options);
  const { signal, numSamples } = options;
  const { sequences } = await sampler.sample({ prompt, numSamples, samplingParams }, { signal });
  const samples = sequences.map(read);
  return { ...samples[0]!, prompt, samples };
}

export async function prepareChat(
  sampler: ChatSampler,
  messages: readonly Message[],
  options: ChatOptions,
): Promise<PreparedChat> {
  checkMessages(messages);
  checkKeys(options, OPTION_KEYS, "");
  const { renderer: given, tools, prefill, maxTokens, temperature, topK, topP, seed, stop, signal } = options;
  const renderer = typeof given === "object" ? given : await rendererOf(sampler, given);
  signal?.throwIfAborted();
  const prompt = renderer.buildPrompt(withTools(renderer, messages, tools), { prefill });
  const prefillTokens =
    prefill === undefined ? [] : renderer.tokenizer.encode(prefill, { addSpecialTokens: false });
  return {
    renderer,
    prompt,
    prefillTokens,
    samplingParams: { maxTokens, temperature, topK, topP, seed, stop: stop ?? renderer.stopSequences },
    read: ({ tokens, logprobs, stopReason }) => {
      const whole = [...prefillTokens, ...tokens];
      const { message, termination } = renderer.parseResponse(untilStop(whole, renderer.stopSequences));
      const text = textOf(message);
      return { message, text, tokens, logprobs: logprobs ?? undefined, stopReason, termination };
    },
  };
}

/** Whether a server refused a request because the conversation does not fit into the model's context. */
export function isContextOverflow(error: unknown): boolean {
  return isUserError(error) && CONTEXT_OVERFLOW.test(messageOf(error));
}

/** Servers say it in words alone: that of the built-in backend, the hosted one, and vLLM's. */
const CONTEXT_OVERFLOW =
  /reads at most \d+|leave room for|context (?:window|length)|context_length|too long for/i;

/** Tools are declared before the conversation, together with what its system message says. */
export function withTools(
  renderer: Renderer,
  messages: readonly Message[],
  tools: readonly ToolDeclaration[] | undefined,
): readonly Message[] {
  if (tools === undefined || tools.length === 0) return messages;
  const [first, ...rest] = messages;
  return first?.role === "system"
    ? [...renderer.declareTools(tools, textOf(first)), ...rest]
    : [...renderer.declareTools(tools), ...messages];
}

/** With a stop text of the caller's, the model may go on after the format's own stop sign. */
function untilStop(
  tokens: readonly number[],
  stops: readonly number[] | readonly string[],
): readonly number[] {
  const signs = new Set<unknown>(stops);
  const end = tokens.findIndex((token) => signs.has(token));
  return end === -1 ? tokens : tokens.slice(0, end + 1);
}

function checkMessages(messages: readonly Message[]): void {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw wrongValue("messages", "a list of at least one message", messages);
  }
  for (const [index, message] of messages.entries()) {
    const field = `messages[${index}]`;
    if (typeof message?.role !== "string" || message.role === "") {
      throw wrongValue(`${field}.role`, "the name of a role", message?.role);
    }
    if (typeof message.content !== "string" && !Array.isArray(message.content)) {
      throw wrongValue(`${field}.content`, "a text or a list of parts", message.content);
    }
  }
}
