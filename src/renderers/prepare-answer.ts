import { TinkerError, ValidationError } from "../errors.js";
import type { ModelInput } from "../wire/index.js";
import { type AnswerParser, AnswerReader, JsonOrCallParser } from "./answer-reader.js";
import { type AnswerShape, type CallAnswer, callAnswer } from "./answer-shape.js";
import { beginPrompt, type ConversationPrompt, continuePrompt } from "./conversation-prompt.js";
import { type Message, type ToolDeclaration, textOf } from "./messages.js";
import type { ModelFormats, ThinkingWish } from "./model-formats.js";
import type { ParsedResponse, Renderer } from "./renderer.js";
import { StreamParser } from "./stream-parser.js";

/** Whether an answer calls tools: the model decides, never, always, or always the named tool. */
export type ToolChoice = "auto" | "none" | "required" | { readonly name: string };

/** JSON that an answer must be: any object, or a value that fits a schema. */
export type ResponseFormat =
  | { readonly type: "json_object" }
  | { readonly type: "json_schema"; readonly schema: unknown };

/** A conversation to be answered, and what is asked of the answer. */
export interface AnswerRequest {
  readonly messages: readonly Message[];
  /** Functions the model may call. */
  readonly tools?: readonly ToolDeclaration[] | undefined;
  /** `false` for a model that was trained on its tools and does not need their declarations. Default: `true`. */
  readonly declareTools?: boolean | undefined;
  /**
   * Default: `"auto"`. A required call begins in the prompt if the format allows it. Samplers that support shapes also
   * restrict its name to the tools and its arguments to their schemas.
   */
  readonly toolChoice?: ToolChoice | undefined;
  /** Maximum number of calls; later ones are left out. Default: all are read. */
  readonly maxToolCalls?: number | undefined;
  /** How much the model thinks; `chooseRenderer` reads it. Default: the model's usual mode. */
  readonly thinking?: ThinkingWish | undefined;
  /** Beginning of the answer, which the model continues. */
  readonly prefill?: string | undefined;
  /** Texts that end the answer, besides the format's own stop signs, and are not part of it. */
  readonly stop?: readonly string[] | undefined;
  /** Tokens that end a text with this model, and that its format does not know. */
  readonly endTokens?: readonly number[] | undefined;
  /** Default: text. Together with tools, the model chooses between such an answer and calls. */
  readonly responseFormat?: ResponseFormat | undefined;
}

/** A conversation as a model reads it, and how its answers are read. */
export interface PreparedAnswer {
  readonly renderer: Renderer;
  readonly prompt: ModelInput;
  /** The prompt with the messages it was written from. */
  readonly conversation: ConversationPrompt;
  readonly stopTokens: readonly number[];
  readonly stopTexts: readonly string[];
  /** The stops for samplers that take either tokens or texts. */
  readonly stop: readonly number[] | readonly string[];
  readonly responseFormat: ResponseFormat | undefined;
  /**
   * Shape of the answer after the prompt, besides or instead of `responseFormat`. A sampler without shapes can still
   * force a call that begins in the prompt: `prefillTokens` are then not empty.
   */
  readonly shape: AnswerShape | undefined;
  /** Whether a token only ends an answer and does not belong to its content. */
  isEnd(token: number): boolean;
  /** Reads an answer in pieces, while its tokens come or when it is whole, with the same result. */
  newReader(): AnswerReader;
  /** Reads an answer as its tokens come, as text and thoughts only; `prefill` is its beginning. */
  newParser(): AnswerParser;
  readonly prefillTokens: readonly number[];
  /** Reads a whole answer as a message. */
  read(tokens: ArrayLike<number>): ParsedResponse;
}

/** A request field for which a conversation cannot be prepared. */
export type ConversationField = "messages" | "tools" | "toolChoice" | "thinking" | "responseFormat";

/** A conversation that cannot be prepared; `why` is the message without the field, which each API names in its own way. */
export class ConversationError extends ValidationError {
  declare readonly field: ConversationField;
  readonly why: string;
  /** True if the model's format lacks something that others have; false if the request contradicts itself. */
  readonly isUnsupported: boolean;

  constructor(field: ConversationField, why: string, { isUnsupported = true } = {}) {
    super(field, `${field} ${why}`);
    this.why = why;
    this.isUnsupported = isUnsupported;
  }
}

/** The renderer for a request; an answer that must begin with a call or with JSON does not think. */
export function chooseRenderer(
  formats: ModelFormats,
  { thinking, toolChoice, responseFormat }: AnswerRequest,
): Renderer {
  if (isForced(toolChoice) || responseFormat !== undefined)
    return formats.withThinking(false) ?? formats.usual;
  if (thinking === undefined) return formats.usual;
  const renderer = formats.withThinking(thinking);
  if (renderer !== undefined) return renderer;
  throw new ConversationError(
    "thinking",
    `cannot be ${thinking} with ${formats.model}: it has no such mode.`,
  );
}

/**
 * Prepares a conversation for sampling: prompt, stops and reader. After an answer that was prepared here, the prompt
 * continues from exactly the sampled tokens, if the format allows it; see `continuePrompt`.
 */
export function prepareAnswer(
  renderer: Renderer,
  request: AnswerRequest,
  answered?: {
    readonly prepared: Pick<PreparedAnswer, "conversation">;
    readonly tokens: ArrayLike<number>;
  },
): PreparedAnswer {
  const { tools = [], toolChoice, declareTools = true, stop = [], endTokens = [], responseFormat } = request;
  const { tokenizer } = renderer;
  const offered = toolChoice === "none" ? [] : tools;
  const isCall = isForced(toolChoice);
  const call = isCall ? forcedCall(renderer, tools, toolChoice, request.maxToolCalls) : undefined;
  const format = isCall ? undefined : responseFormat;
  const prefill = call === undefined ? request.prefill : call.opening || undefined;
  const messages = declareTools ? withTools(renderer, request.messages, offered) : request.messages;
  if (format !== undefined && !beginsWithText(renderer, messages))
    throw new ConversationError("responseFormat", "must be text with this model, which always thinks first.");
  const conversation = written(() =>
    answered === undefined
      ? beginPrompt(renderer, messages, prefill)
      : continuePrompt(renderer, answered.prepared.conversation, answered.tokens, messages, prefill),
  );
  const prefillTokens = prefill === undefined ? [] : tokenizer.encode(prefill, { addSpecialTokens: false });
  const own: readonly (number | string)[] = renderer.stopSequences;
  const turnEnds = own.filter((sign) => typeof sign === "number");
  const stopTokens = [...new Set([...turnEnds, ...endTokens])];
  const newParser = () => {
    const parser = () => renderer.streamParser(messages, stop, offered);
    if (format === undefined) return parser();
    const json = plainText(renderer, turnEnds);
    return offered.length === 0 ? json : new JsonOrCallParser(tokenizer, json, parser());
  };
  return {
    renderer,
    conversation,
    prompt: conversation.prompt,
    stopTokens,
    // JSON and calls end by themselves.
    stopTexts: call ? [] : [...(format ? [] : own.filter((sign) => typeof sign === "string")), ...stop],
    stop:
      stop.length === 0
        ? renderer.stopSequences
        : [...own.map((sign) => (typeof sign === "number" ? tokenizer.decode([sign]) : sign)), ...stop],
    responseFormat: format,
    shape: call?.shape ?? (format && offered.length > 0 ? jsonOrCall(renderer, format, request) : undefined),
    prefillTokens,
    isEnd: (token) => stopTokens.includes(token),
    newParser,
    newReader: () =>
      new AnswerReader({
        parser: newParser(),
        readsCalls: offered.length > 0,
        callSign: renderer.callSign,
        maxCalls: request.maxToolCalls,
        prefill: prefillTokens,
        ignored: endTokens.filter((token) => !turnEnds.includes(token)),
      }),
    read: (tokens) =>
      renderer.parseResponse(untilEnd([...prefillTokens, ...Array.from(tokens)], turnEnds), offered),
  };
}

/** Messages with tools declared before them, together with what their system message says. */
export function withTools(
  renderer: Renderer,
  messages: readonly Message[],
  tools: readonly ToolDeclaration[],
): readonly Message[] {
  if (tools.length === 0) return messages;
  const system = messages[0]?.role === "system" ? messages[0] : undefined;
  const isMarked = messages.some(({ trainable }) => trainable !== undefined);
  const mark = isMarked ? { trainable: system?.trainable ?? false } : {};
  try {
    const declared = renderer.declareTools(tools, system && textOf(system));
    return [
      ...declared.map((message) => ({ ...message, ...mark })),
      ...messages.slice(system === undefined ? 0 : 1),
    ];
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    throw new ConversationError("tools", `cannot be given to this model: ${error.message}`);
  }
}

function isForced(choice: ToolChoice | undefined): choice is "required" | { readonly name: string } {
  return choice === "required" || typeof choice === "object";
}

/** An answer that calls one of the tools, or the named one. */
function forcedCall(
  renderer: Renderer,
  tools: readonly ToolDeclaration[],
  choice: "required" | { readonly name: string },
  max: number | undefined,
): CallAnswer {
  const invalid = { isUnsupported: false };
  if (tools.length === 0)
    throw new ConversationError("toolChoice", "asks for a call, and no tools are given.", invalid);
  const asked = choice === "required" ? undefined : choice.name;
  const allowed = asked === undefined ? tools : tools.filter(({ name }) => name === asked).slice(0, 1);
  if (allowed.length === 0)
    throw new ConversationError("toolChoice", `names ${asked}, which is not among tools.`, invalid);
  const form = renderer.callForm;
  if (form !== undefined) return callAnswer(form, allowed, { max: asked === undefined ? max : 1 });
  throw new ConversationError(
    "toolChoice",
    `"${asked ?? choice}" is not possible here: this model's format has no calls that an answer could be kept to. ` +
      "Ask for the call in the prompt.",
  );
}

/** An answer that is JSON or a call; the model decides. */
function jsonOrCall(renderer: Renderer, format: ResponseFormat, request: AnswerRequest): AnswerShape {
  const form = renderer.callForm;
  if (form === undefined)
    throw new ConversationError("responseFormat", "must be text together with tools in this model's format.");
  const { shape } = callAnswer(form, request.tools ?? [], { max: request.maxToolCalls, isBegun: false });
  const schema = format.type === "json_schema" ? format.schema : undefined;
  return { type: "choice", options: [{ type: "json", schema }, shape] };
}

function written(write: () => ConversationPrompt): ConversationPrompt {
  try {
    return write();
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    const why = `cannot be written in this model's format: ${error.message}`;
    throw new ConversationError("messages", why, { isUnsupported: false });
  }
}

/** Whether an answer is visible from its first token. */
function beginsWithText(renderer: Renderer, answered: readonly Message[]): boolean {
  const parser = renderer.streamParser(answered);
  const deltas = [
    ...parser.push(renderer.tokenizer.encode("{}", { addSpecialTokens: false })),
    ...parser.end(),
  ];
  return deltas.some((delta) => delta.type === "text" && delta.text.startsWith("{"));
}

/** Reads all of an answer as text: within JSON there are no tags. */
function plainText({ tokenizer }: Renderer, endTokens: readonly number[]): StreamParser {
  return new StreamParser({
    tokenizer,
    endTokens,
    endTexts: [],
    prefix: "",
    format: { first: "text", ends: { text: [], thinking: [], hidden: [] }, after: (kind) => kind },
    parse: (tokens) => ({
      message: { role: "assistant", content: tokenizer.decode(tokens) },
      termination: "stop_sequence",
    }),
  });
}

/** With the caller's stop texts, the model may continue after the format's own stop sign. */
function untilEnd(tokens: readonly number[], ends: readonly number[]): readonly number[] {
  const end = tokens.findIndex((token) => ends.includes(token));
  return end === -1 ? tokens : tokens.slice(0, end + 1);
}
