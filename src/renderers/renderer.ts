import { TinkerError, ValidationError } from "../errors.js";
import type { TextTokenizer } from "../tokenizers/index.js";
import type { ModelInput } from "../wire/index.js";
import type { Message, ToolDeclaration } from "./messages.js";
import { beginsWith, modelInput, type Piece, spread } from "./pieces.js";
import { type StreamFormat, StreamParser } from "./stream-parser.js";

/** What of a conversation is learnt. */
export type TrainOn =
  | "last_assistant_message"
  | "last_assistant_turn"
  | "all_assistant_messages"
  | "all_messages"
  | "all_tokens"
  | "all_user_and_system_messages"
  | "customized";

/** How a sampled answer ended: with the format's stop sign, with the end of text, or neither as it should. */
export type ParseTermination = "stop_sequence" | "eos" | "malformed";

/** An answer, read back from its tokens. */
export interface ParsedResponse {
  readonly message: Message;
  readonly termination: ParseTermination;
}

/** A conversation as one sequence to learn from: a weight for each position. */
export interface SupervisedExample {
  readonly input: ModelInput;
  /** 1 for what is learnt, 0 for what is only read. */
  readonly weights: Float32Array;
}

/** What a renderer needs of a tokenizer. Those of `tinkerts/tokenizers` have it. */
export interface RendererTokenizer extends TextTokenizer {
  /** The token that begins a text, where the model has one. */
  readonly bosToken?: string | undefined;
  /** The token that ends a text, where the model has one. */
  readonly eosToken?: string | undefined;
}

/** Where a message stands in its conversation. */
export interface RenderContext {
  /** The whole conversation, as `prepareMessages` made it. */
  readonly messages: readonly Message[];
  readonly index: number;
  readonly isLast: boolean;
  readonly previous: Message | undefined;
  readonly next: Message | undefined;
  /** Whether it is written for a prompt, in which the last message is history too. */
  readonly isPrompt: boolean;
  /** -1 without a message of the user. */
  readonly lastUserIndex: number;
  /** Whether it belongs to the turn that the model is asked to produce: several messages, where tools are called. */
  readonly inLastAssistantTurn: boolean;
}

/** A message in pieces that are weighed apart. */
export interface RenderedMessage {
  /** Introduces the turn; the model reads it and never writes it. */
  readonly header: readonly number[];
  /** What the model writes in this turn, with the sign that ends it. */
  readonly output: readonly Piece[];
  /** What completes a stop text that reaches into the next header; learnt behind the last message only. */
  readonly stopOverlap?: readonly number[] | undefined;
}

/** How a prompt is built. */
export interface PromptOptions {
  /** Who speaks next. Default: `"assistant"`. */
  readonly role?: string | undefined;
  /** The beginning of the answer, which the model goes on from. */
  readonly prefill?: string | undefined;
}

const MAX_HEADER_LENGTH = 64;
const MAX_HEADERS = 256;

/**
 * Writes conversations in the tokens of one family of models, says which of them are learnt, and reads answers back.
 * A format of your own extends this class: `renderMessage`, `parseResponse` and `stopSequences` are what it must have.
 */
export abstract class Renderer {
  readonly tokenizer: RendererTokenizer;
  /** Headers and other short texts come with every message. */
  readonly #headers = new Map<string, readonly number[]>();

  constructor(tokenizer: RendererTokenizer) {
    this.tokenizer = tokenizer;
  }

  /** Tokens or texts at which sampling ends. */
  abstract get stopSequences(): readonly number[] | readonly string[];

  /** Reads a sampled answer. What cannot be read is `malformed`, with its text as content. */
  abstract parseResponse(tokens: ArrayLike<number>): ParsedResponse;

  protected abstract renderMessage(message: Message, context: RenderContext): RenderedMessage;

  /**
   * Whether each prompt of a conversation begins with the one before it and its answer. Formats that drop old thoughts
   * do not have it: there every answer needs an example of its own.
   */
  get hasExtensionProperty(): boolean {
    return false;
  }

  /** Whether the prompt tells the model not to think, so that an answer with thoughts cannot follow it. */
  protected get disablesThinking(): boolean {
    return false;
  }

  protected get bosTokens(): readonly number[] {
    return [];
  }

  /** The messages as the format wants them: with a system message it adds, or results in the order of their calls. */
  protected prepareMessages(messages: readonly Message[]): readonly Message[] {
    return messages;
  }

  /** The messages that declare tools; they stand before the conversation, instead of a system message of one's own. */
  declareTools(_tools: readonly ToolDeclaration[], _systemPrompt = ""): readonly Message[] {
    throw new TinkerError("This renderer's format has no tools.");
  }

  /** The text that a model's calls begin with, where they stand within the text of an answer. */
  get callSign(): string | undefined {
    return undefined;
  }

  /**
   * The beginning of an answer that is a call, to prefill: of one function, or of the one that the model chooses.
   * Undefined where the format knows none, or lets the model think first.
   */
  callOpening(_name?: string): string | undefined {
    return undefined;
  }

  /** What a model reads before it answers. */
  buildPrompt(given: readonly Message[], { role = "assistant", prefill }: PromptOptions = {}): ModelInput {
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
   * The conversation as examples to learn from. Formats that write an answer one way as history and another way as the
   * turn being produced give one for each answer, so that each is learnt behind the prompt it will be sampled from.
   */
  buildSupervisedExamples(
    messages: readonly Message[],
    trainOn: TrainOn = "last_assistant_turn",
  ): readonly SupervisedExample[] {
    if (this.hasExtensionProperty) return [this.buildSupervisedExample(messages, trainOn)];
    const first = this.#firstOwnExample(messages, trainOn);
    return messages.flatMap(({ role }, index) =>
      index >= first && role === "assistant"
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
   * earlier answers are learnt behind a prompt they were not sampled from: use `buildSupervisedExamples` there.
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

  /** Takes the weight of everything that the prompt supplies, as an opened block of thoughts, since nobody samples it. */
  #trainAfterThePrompt(messages: readonly Message[], trainOn: TrainOn, example: SupervisedExample): void {
    const boundary = promptBoundary(messages, trainOn);
    if (boundary === undefined) return;
    const prompt = this.buildPrompt(messages.slice(0, boundary));
    if (beginsWith(example.input, prompt)) {
      example.weights.fill(0, 0, prompt.length);
    } else if (this.disablesThinking) {
      throw new TinkerError(
        "This renderer's prompt tells the model not to think, and this answer has thoughts: they can never follow " +
          "that prompt. Take the thinking renderer of the family, or leave the thoughts out of the answer.",
      );
    }
  }

  /**
   * For answers whose tokens come one by one. The conversation that is answered decides in some formats whether the
   * answer begins with thoughts. Stop texts of one's own end the answer too, and are never part of it.
   */
  streamParser(_answered: readonly Message[] = [], stopTexts: readonly string[] = []): StreamParser {
    return new StreamParser({
      tokenizer: this.tokenizer,
      endTokens: this.streamEndTokens,
      endTexts: [...this.stopSequences.filter((stop) => typeof stop === "string"), ...stopTexts],
      prefix: this.streamPrefix,
      padding: this.streamPadding,
      format: this.streamFormat,
      parse: (tokens) => this.parseTruncated(tokens),
    });
  }

  /** The tokens that end an answer while it is streamed. */
  protected get streamEndTokens(): readonly number[] {
    return this.stopSequences.filter((stop) => typeof stop === "number");
  }

  /** What the prompt has written of the answer already, as an opened block of thoughts. */
  protected get streamPrefix(): string {
    return "";
  }

  /** One character that the format writes before an answer, and which is no part of it. */
  protected get streamPadding(): string | undefined {
    return undefined;
  }

  /** How a stream tells text from thoughts, where not by `<think>` and `</think>`. */
  protected get streamFormat(): StreamFormat | undefined {
    return undefined;
  }

  /** Reads an answer to its last block, also where its end is missing. */
  protected parseTruncated(tokens: readonly number[]): ParsedResponse {
    return this.parseResponse(tokens);
  }

  /** What stands behind the last message of a prompt: the header of the answer. */
  protected promptSuffix(role: string, context: RenderContext): readonly number[] {
    return this.renderMessage({ role, content: "" }, context).header;
  }

  /** Where the turn begins that the model is asked to produce: behind the last message of the user. */
  protected turnStart(messages: readonly Message[]): number {
    return lastUserIndex(messages) + 1;
  }

  protected isTrained(message: Message, context: RenderContext, trainOn: TrainOn): boolean {
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
          `trainOn is ${String(trainOn satisfies never)}, which is no mode`,
        );
    }
  }

  /** The tokens of a text; special tokens written out in it become those tokens. */
  protected encode(text: string): readonly number[] {
    const known = this.#headers.get(text);
    if (known !== undefined) return known;
    const tokens = this.tokenizer.encode(text, { addSpecialTokens: false });
    if (text.length <= MAX_HEADER_LENGTH && this.#headers.size < MAX_HEADERS) this.#headers.set(text, tokens);
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

/** The message before which the prompt ends, in the modes that learn the turn a prompt asks for. */
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
        ? `${field} must say whether the message is learnt, since trainOn is "customized"`
        : `${field} is for trainOn "customized" alone, and trainOn is "${trainOn}"`,
    );
  }
}
