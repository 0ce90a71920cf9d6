import { TinkerError, ValidationError } from "../errors.js";
import type { TextTokenizer } from "../tokenizers/index.js";
import * as f from "../wire/fields/index.js";
import type { ModelInput } from "../wire/index.js";
import type { CallForm } from "./answer-shape.js";
import { encodeMarkup, type Markup, markup, withPhrases } from "./markup.js";
import type { Message, ToolDeclaration } from "./messages.js";
import { beginsWith, modelInput, type Piece, spread } from "./pieces.js";
import { type StreamFormat, StreamParser } from "./stream-parser.js";
import type { Thinking, ThinkingMode } from "./thinking.js";

/** Part of a conversation that is trained on. */
export type TrainOn = (typeof TRAIN_ON)[number];

/** The values of `TrainOn`, the default first. */
export const TRAIN_ON = [
  "all_assistant_messages",
  "last_assistant_message",
  "last_assistant_turn",
  "all_messages",
  "all_tokens",
  "all_user_and_system_messages",
  "customized",
] as const;

/** How a sampled answer ended: with the format's stop sign, with the end of text, or with neither. */
export type ParseTermination = "stop_sequence" | "eos" | "malformed";

/** An answer, read back from its tokens. */
export interface ParsedResponse {
  readonly message: Message;
  readonly termination: ParseTermination;
}

/** A conversation as one training sequence, with a weight for each position. */
export interface SupervisedExample {
  readonly input: ModelInput;
  /** Weight of each token: 1 for trained tokens, 0 for the others. */
  readonly weights: Float32Array;
}

/** Tokenizer that a renderer needs; those of `tinkerts/tokenizers` fit. */
export interface RendererTokenizer extends TextTokenizer {
  /** The token that begins a text, where the model has one. */
  readonly bosToken?: string | undefined;
  /** The token that ends a text, where the model has one. */
  readonly eosToken?: string | undefined;
}

/** Position of a message in its conversation. */
export interface RenderContext {
  /** The whole conversation, as `prepareMessages` made it. */
  readonly messages: readonly Message[];
  readonly index: number;
  readonly isLast: boolean;
  readonly previous: Message | undefined;
  readonly next: Message | undefined;
  /** True if the message is rendered for a prompt, where the last message is history too. */
  readonly isPrompt: boolean;
  /** Index of the last user message; -1 without one. */
  readonly lastUserIndex: number;
  /** True if the message belongs to the turn that the model produces, which is several messages with tool calls. */
  readonly inLastAssistantTurn: boolean;
}

/** Tokens of a message in pieces with separate weights. */
export interface RenderedMessage {
  /** Introduces the turn; the model reads it and never writes it. */
  readonly header: readonly number[];
  /** Tokens that the model writes in this turn, including the stop sign. */
  readonly output: readonly Piece[];
  /** Tokens that complete a stop text reaching into the next header; trained on after the last message only. */
  readonly stopOverlap?: readonly number[] | undefined;
}

/** Options of `buildPrompt`: role and prefill. */
export interface PromptOptions {
  /** Role of the next message. Default: `"assistant"`. */
  readonly role?: string | undefined;
  /** Beginning of the answer, which the model continues. */
  readonly prefill?: string | undefined;
}

const PROMPT_OPTIONS = f.optionTable({
  role: f.withDefault(f.text, "assistant"),
  prefill: f.optional(f.anyText),
} satisfies f.FieldsOf<PromptOptions>);

/** Checks the options of `buildPrompt` and fills in the role. */
export const promptOptions = (options: PromptOptions) => PROMPT_OPTIONS.check(options, "buildPrompt");

/** Roles that messages have in every format. */
export const COMMON_ROLES: readonly string[] = ["system", "user", "assistant", "tool"];

const MAX_HEADER_LENGTH = 64;
const MAX_HEADERS = 256;

/**
 * Writes conversations in the tokens of one model family, marks those that are trained on, and reads answers back. Your
 * own format extends this class with `renderMessage`, `parseResponse` and `stopSequences`.
 */
export abstract class Renderer {
  readonly tokenizer: RendererTokenizer;
  /** How this format treats thoughts. */
  readonly thinking: Thinking;
  /** True for a renderer that writes as the Python cookbook 0.5.8 does where that differs from the model's chat template. */
  protected readonly isCookbook: boolean;
  /** Caches the tokens of headers and other short texts, which come with every message. */
  readonly #headers = new Map<string, readonly number[]>();

  constructor(tokenizer: RendererTokenizer, { thinking = "absent", isCookbook = false }: ThinkingMode = {}) {
    this.tokenizer = tokenizer;
    this.thinking = thinking;
    this.isCookbook = isCookbook;
  }

  /** Tokens or texts at which sampling ends. */
  abstract get stopSequences(): readonly number[] | readonly string[];

  /**
   * Reads a sampled answer. One that cannot be read is `malformed`, with its text as content. `tools` are the declared
   * functions: in formats that do not mark texts, their schemas tell texts from other values.
   */
  abstract parseResponse(tokens: ArrayLike<number>, tools?: readonly ToolDeclaration[]): ParsedResponse;

  protected abstract renderMessage(message: Message, context: RenderContext): RenderedMessage;

  /** Roles that messages may have in this format; training refuses others, which are usually misspelt. */
  get roles(): readonly string[] {
    return COMMON_ROLES;
  }

  /**
   * Whether each prompt of a conversation begins with the previous prompt and its answer. Not so in formats that drop old
   * thoughts, where every answer needs its own example.
   */
  get hasExtensionProperty(): boolean {
    return false;
  }

  protected get bosTokens(): readonly number[] {
    return [];
  }

  /** The messages in the form of the format: for example with a system message, or results in the order of their calls. */
  protected prepareMessages(messages: readonly Message[]): readonly Message[] {
    return messages;
  }

  /** Messages that declare tools; they come before the conversation and replace its system message. */
  declareTools(_tools: readonly ToolDeclaration[], _systemPrompt = ""): readonly Message[] {
    throw new TinkerError("This renderer's format has no tools.");
  }

  /** Text that calls begin with, in formats that write calls within the text of an answer. */
  get callSign(): string | undefined {
    return undefined;
  }

  /** How calls are written in an answer, so that one can be forced; undefined if the format has none. */
  get callForm(): CallForm | undefined {
    return undefined;
  }

  /** Builds the prompt that a model answers. */
  buildPrompt(given: readonly Message[], options: PromptOptions = {}): ModelInput {
    const { role, prefill } = promptOptions(options);
    const messages = this.prepareMessages(given);
    const pieces: Piece[] = [this.bosTokens];
    const context = contexts(messages, this.turnStart(messages), true);
    for (const [index, message] of messages.entries()) {
      const { header, output } = this.renderMessage(message, context(index));
      pieces.push(header, ...output);
    }
    const suffixContext = {
      ...context(messages.length),
      isLast: true,
      inLastAssistantTurn: true,
    };
    pieces.push(this.promptSuffix(role, suffixContext));
    if (prefill !== undefined) pieces.push(this.encode(prefill));
    return modelInput(pieces);
  }

  /**
   * The conversation as training examples. Formats that write an answer differently once it is history give one example
   * per answer, so that each is trained on after the prompt it will be sampled from.
   */
  buildSupervisedExamples(
    messages: readonly Message[],
    trainOn: TrainOn = "last_assistant_turn",
  ): readonly SupervisedExample[] {
    if (this.hasExtensionProperty) return [this.buildSupervisedExample(messages, trainOn)];
    const first = this.#firstOwnExample(messages, trainOn);
    return messages.flatMap(({ role, weight }, index) =>
      index >= first && role === "assistant" && weight !== 0
        ? [this.buildSupervisedExample(messages.slice(0, index + 1), "last_assistant_message")]
        : [],
    );
  }

  #firstOwnExample(messages: readonly Message[], trainOn: TrainOn): number {
    switch (trainOn) {
      case "last_assistant_message":
        return messages.length - 1;
      case "last_assistant_turn":
        return this.turnStart(messages);
      case "all_assistant_messages":
        return 0;
      default:
        throw new ValidationError(
          "trainOn",
          `trainOn must be one of the modes for assistant messages with this renderer, got ${trainOn}: it writes ` +
            "an answer otherwise as history than as the turn being produced, so each answer is an example of its own",
        );
    }
  }

  /**
   * The conversation as one sequence. With `all_assistant_messages` and a renderer without the extension property,
   * earlier answers are trained on after a prompt they were not sampled from: use `buildSupervisedExamples` there.
   */
  buildSupervisedExample(
    given: readonly Message[],
    trainOn: TrainOn = "last_assistant_message",
  ): SupervisedExample {
    checkTrainable(given, trainOn);
    const messages = this.prepareMessages(given);
    const pieces: Piece[] = [this.bosTokens];
    const weights: number[] = [0];
    const context = contexts(messages, this.turnStart(messages.slice(0, -1)));
    for (const [index, message] of messages.entries()) {
      const place = context(index);
      const { header, output, stopOverlap } = this.renderMessage(message, place);
      const weight = this.isTrained(message, place, trainOn) ? 1 : 0;
      pieces.push(header, ...output);
      weights.push(trainOn === "all_tokens" ? 1 : 0, ...output.map(() => weight));
      if (place.isLast && stopOverlap !== undefined) {
        pieces.push(stopOverlap);
        weights.push(weight);
      }
    }
    const example = { input: modelInput(pieces), weights: spread(pieces, weights) };
    this.#trainAfterThePrompt(messages, trainOn, example);
    return example;
  }

  /** Sets weight 0 for tokens that the prompt supplies, such as an opened block of thoughts: they are never sampled. */
  #trainAfterThePrompt(messages: readonly Message[], trainOn: TrainOn, example: SupervisedExample): void {
    const boundary = promptBoundary(messages, trainOn);
    if (boundary === undefined) return;
    const prompt = this.buildPrompt(messages.slice(0, boundary));
    if (beginsWith(example.input, prompt)) {
      example.weights.fill(0, 0, prompt.length);
    } else if (this.thinking === "disabled") {
      throw new TinkerError(
        "This renderer's prompt tells the model not to think, and this answer has thoughts: they can never follow " +
          "that prompt. Take the thinking renderer of the family, or leave the thoughts out of the answer.",
      );
    }
  }

  /**
   * Reads an answer whose tokens come one by one. In some formats the conversation decides whether the answer begins with
   * thoughts. Your own stop texts end the answer too, and are never part of it.
   */
  streamParser(
    _answered: readonly Message[] = [],
    stopTexts: readonly string[] = [],
    tools: readonly ToolDeclaration[] = [],
  ): StreamParser {
    return new StreamParser({
      tokenizer: this.tokenizer,
      endTokens: this.streamEndTokens,
      endTexts: [...this.stopSequences.filter((stop) => typeof stop === "string"), ...stopTexts],
      prefix: this.streamPrefix,
      padding: this.streamPadding,
      format: this.streamFormat,
      parse: (tokens) => this.parseTruncated(tokens, tools),
    });
  }

  /** The tokens that end an answer while it is streamed. */
  protected get streamEndTokens(): readonly number[] {
    return this.stopSequences.filter((stop) => typeof stop === "number");
  }

  /** Beginning of the answer that the prompt already contains, such as an opened block of thoughts. */
  protected get streamPrefix(): string {
    return "";
  }

  /** One character that the format writes before an answer and that is not part of it. */
  protected get streamPadding(): string | undefined {
    return undefined;
  }

  /** How a stream separates text from thoughts, if not by `<think>` and `</think>`. */
  protected get streamFormat(): StreamFormat | undefined {
    return undefined;
  }

  /** Reads an answer to its last block, also if its end is missing. */
  protected parseTruncated(tokens: readonly number[], tools?: readonly ToolDeclaration[]): ParsedResponse {
    return this.parseResponse(tokens, tools);
  }

  /** Tokens after the last message of a prompt: the header of the answer. */
  protected promptSuffix(role: string, context: RenderContext): readonly number[] {
    return this.renderMessage({ role, content: "" }, context).header;
  }

  /** Where the turn begins that the model produces: after the last message of the user. */
  protected turnStart(messages: readonly Message[]): number {
    return lastUserIndex(messages) + 1;
  }

  protected isTrained(message: Message, context: RenderContext, trainOn: TrainOn): boolean {
    if (message.weight === 0) return false;
    const isAssistant = message.role === "assistant";
    switch (trainOn) {
      case "last_assistant_message":
        return context.isLast && isAssistant;
      case "last_assistant_turn":
        return context.inLastAssistantTurn && isAssistant;
      case "all_assistant_messages":
        return isAssistant;
      case "all_messages":
      case "all_tokens":
        return true;
      case "all_user_and_system_messages":
        return message.role === "user" || message.role === "system";
      case "customized":
        return message.trainable ?? false;
      default:
        throw new ValidationError(
          "trainOn",
          `trainOn is ${String(trainOn satisfies never)}, which is not a mode`,
        );
    }
  }

  /**
   * The tokens of what the format writes. In a string, special tokens that are written out become those tokens; in
   * markup, plain text stays text.
   */
  protected encode(text: string | Markup): readonly number[] {
    if (typeof text === "string")
      return this.#remember(text, () => this.tokenizer.encode(text, { addSpecialTokens: false }));
    return this.#remember(text.key, () =>
      encodeMarkup(
        text,
        (sign) => this.#controlToken(sign),
        (plain) => this.plainTokens(plain),
      ),
    );
  }

  /** Tokens of plain text, which contains no control tokens. */
  protected plainTokens(text: string): readonly number[] {
    return this.tokenizer.encode(text, {
      addSpecialTokens: false,
      splitSpecialTokens: true,
      plainText: true,
    });
  }

  /** The phrases with control tokens that `declareTools` writes into a system message. */
  protected get toolPhrases(): readonly string[] {
    return [];
  }

  /** The text of a message as markup; only a system message may contain text of the format. */
  protected textMarkup({ role }: Pick<Message, "role">, text: string): Markup {
    return role === "system" ? withPhrases(text, this.toolPhrases) : markup`${text}`;
  }

  #controlToken(sign: string): number | undefined {
    const tokens = this.encode(sign);
    return tokens.length === 1 ? tokens[0] : undefined;
  }

  #remember(text: string, encode: () => readonly number[]): readonly number[] {
    if (text.length > MAX_HEADER_LENGTH) return encode();
    const known = this.#headers.get(text);
    if (known !== undefined) return known;
    const tokens = encode();
    if (this.#headers.size < MAX_HEADERS) this.#headers.set(text, tokens);
    return tokens;
  }

  /** The one token of a special text. */
  protected token(text: string): number {
    const [token, ...rest] = this.encode(text);
    if (token === undefined || rest.length > 0) {
      throw new TinkerError(`This renderer does not fit the tokenizer, which has no token ${text}.`);
    }
    return token;
  }
}

export function lastUserIndex(messages: readonly Message[]): number {
  return messages.findLastIndex(({ role }) => role === "user");
}

export function contexts(
  messages: readonly Message[],
  turnStart: number,
  isPrompt = false,
): (index: number) => RenderContext {
  const userIndex = lastUserIndex(messages);
  return (index) => ({
    messages,
    index,
    isLast: index === messages.length - 1,
    previous: messages[index - 1],
    next: messages[index + 1],
    isPrompt,
    lastUserIndex: userIndex,
    inLastAssistantTurn: index >= turnStart,
  });
}

/** The message before which the prompt ends, in modes that train on the requested turn. */
function promptBoundary(messages: readonly Message[], trainOn: TrainOn): number | undefined {
  if (trainOn !== "last_assistant_message" && trainOn !== "last_assistant_turn") return undefined;
  const boundary = trainOn === "last_assistant_message" ? messages.length - 1 : lastUserIndex(messages) + 1;
  return messages[boundary]?.role === "assistant" ? boundary : undefined;
}

export function checkTrainable(messages: readonly Message[], trainOn: TrainOn): void {
  for (const [index, { trainable }] of messages.entries()) {
    if ((trainable !== undefined) === (trainOn === "customized")) continue;
    const field = `messages[${index}].trainable`;
    throw new ValidationError(
      field,
      trainOn === "customized"
        ? `${field} must say whether the message is trained on, since trainOn is "customized"`
        : `${field} is for trainOn "customized" alone, and trainOn is "${trainOn}"`,
    );
  }
}
