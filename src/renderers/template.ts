import { TinkerError, ValidationError } from "../errors.js";
import { ModelInput } from "../wire/index.js";
import {
  type ContentPart,
  type Message,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  type UnparsedToolCall,
} from "./messages.js";
import { splitAtBlocks, textBeforeStop, toolCallFields, unterminatedToolBlock } from "./parsing.js";
import { strip, stripEnd, stripStart } from "./python-text.js";
import {
  checkTrainable,
  contexts,
  type ParsedResponse,
  type PromptOptions,
  type RenderedMessage,
  Renderer,
  type RendererTokenizer,
  type SupervisedExample,
  type TrainOn,
} from "./renderer.js";
import { PROBE, TemplateFormat, type TemplateTokenizer, TOOL_DECLARE } from "./template-format.js";
import { type Place, placeOfAnswer, placeOfWords } from "./template-places.js";
import { readXmlToolCall } from "./xml-tools.js";

const THINK_OPEN = "<think>";
const THINK_CLOSE = "</think>";
const CALL_OPEN = "<tool_call>";
const CALL_CLOSE = "</tool_call>";

/** How a renderer reads its template. */
export interface TemplateRendererOptions {
  /** What the template reads besides the messages, as `{ enable_thinking: false }`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
}

/**
 * A renderer for any model that comes with a chat template, which is taken as the truth: what it writes before an answer
 * is the prompt, and what it writes from there to the token that ends the turn is learnt. Special tokens written out in
 * a message become those tokens, as they do with the template itself. Where the template writes an answer otherwise later on, that answer cannot be learnt within the longer conversation, and is refused there;
 * `buildSupervisedExamples` makes an example of its own of each.
 */
export function templateRenderer(
  tokenizer: RendererTokenizer,
  { variables = {} }: TemplateRendererOptions = {},
): Renderer {
  const { applyChatTemplate, hasChatTemplate } = tokenizer as Partial<TemplateTokenizer> & {
    readonly hasChatTemplate?: boolean;
  };
  if (applyChatTemplate === undefined || hasChatTemplate === false) {
    throw new ValidationError(
      "tokenizer",
      "tokenizer must have a chat template for this renderer; take one of the others by its name",
    );
  }
  return new TemplateRenderer(tokenizer as TemplateTokenizer, variables);
}

/** Part of a text in tokens, and the message that it is the words of. */
interface Piece {
  readonly tokens: readonly number[];
  readonly index?: number;
}

const tokensOf = (pieces: readonly Piece[]): number[] => pieces.flatMap(({ tokens }) => tokens);

class TemplateRenderer extends Renderer {
  readonly #format: TemplateFormat;
  readonly #opensThoughts: boolean;
  readonly #readsCalls: boolean;
  /** The blocks of an answer that are no text: thoughts first, calls second. */
  readonly #blocks: RegExp;
  readonly #extends: boolean;

  constructor(tokenizer: TemplateTokenizer, variables: Readonly<Record<string, unknown>>) {
    super(tokenizer);
    const { question, thoughtful, calling } = PROBE;
    this.#format = new TemplateFormat(tokenizer, variables);
    this.#opensThoughts = this.#format.write([question], true).trimEnd().endsWith(THINK_OPEN);
    const readsThoughts = this.#format.takesThoughts && this.#writes([question, thoughtful], THINK_CLOSE);
    this.#readsCalls = this.#format.takesCalls && this.#writes([question, calling], CALL_OPEN);
    const [thoughts, calls] = [readsThoughts ? THINK_OPEN : "(?!)", this.#readsCalls ? CALL_OPEN : "(?!)"];
    this.#blocks = new RegExp(`${thoughts}(.*?)${THINK_CLOSE}|${calls}(.*?)${CALL_CLOSE}`, "gs");
    this.#extends = this.#findExtensionProperty();
  }

  #writes(messages: readonly Message[], tag: string): boolean {
    const [question] = messages;
    return this.#format
      .write(messages, false)
      .slice(this.#format.write([question!], false).length)
      .includes(tag);
  }

  override get stopSequences(): readonly number[] {
    return [...this.#format.stops.keys()];
  }

  override get hasExtensionProperty(): boolean {
    return this.#extends;
  }

  /** Whether answers stay as they were written when the conversation goes on. */
  #findExtensionProperty(): boolean {
    const { question, answer, thoughtful, calling, result } = PROBE;
    const stays = (first: Message, ...later: Message[]) => {
      const messages = [question, first, ...later];
      const write = () => this.#format.write(messages, later.length > 0);
      return "start" in placeOfAnswer(this.#format, messages, 1, write);
    };
    const thoughtfulCall = { ...thoughtful, toolCalls: calling.toolCalls };
    // An answer that the template cannot write at all is not written otherwise later on.
    return (
      ([answer, thoughtful] as Message[])
        .filter((each) => stays(each))
        .every((each) => stays(each, question)) &&
      [calling, thoughtfulCall]
        .filter((each) => stays(each))
        .every((each) => stays(each, result) && stays(each, result, answer, question))
    );
  }

  protected override renderMessage(): RenderedMessage {
    throw new TinkerError("A chat template writes whole conversations, not single messages.");
  }

  override get callSign(): string | undefined {
    return this.#readsCalls ? CALL_OPEN : undefined;
  }

  /** As the template writes a call itself, up to the name or to the arguments. */
  override callOpening(name?: string): string | undefined {
    if (!this.#readsCalls || this.#opensThoughts) return undefined;
    const { question, calling } = PROBE;
    const [{ name: probe }] = calling.toolCalls;
    const written = this.#format.write([question, calling], false);
    const call = written.slice(written.lastIndexOf(CALL_OPEN, written.lastIndexOf(CALL_CLOSE)));
    const [nameAt, argumentsAt] = [call.indexOf(probe), call.search(/\{\s*"probe_key"|<parameter=/)];
    if (name === undefined) return call.slice(0, nameAt);
    return call.slice(0, nameAt) + name + call.slice(nameAt + probe.length, argumentsAt);
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    return [
      { role: TOOL_DECLARE, content: JSON.stringify(tools) },
      ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
    ];
  }

  override buildPrompt(
    messages: readonly Message[],
    { role = "assistant", prefill }: PromptOptions = {},
  ): ModelInput {
    if (role !== "assistant") {
      throw new ValidationError(
        "role",
        `role must be "assistant": a chat template asks nobody else, got "${role}"`,
      );
    }
    const text = this.#format.write(messages, true);
    const tokens = tokensOf(this.#pieces(text, this.#answers(text, messages)));
    return ModelInput.fromInts(prefill === undefined ? tokens : [...tokens, ...this.encode(prefill)]);
  }

  override buildSupervisedExample(
    messages: readonly Message[],
    trainOn: TrainOn = "last_assistant_message",
  ): SupervisedExample {
    checkTrainable(messages, trainOn);
    const context = contexts(messages, this.turnStart(messages.slice(0, -1)));
    const learntIndexes = new Set(
      trainOn === "all_tokens"
        ? []
        : [...messages.keys()].filter((index) => this.isTrained(messages[index]!, context(index), trainOn)),
    );
    const whole = this.#format.write(messages, false);
    const answers = this.#answers(whole, messages);
    const last = answers.get(messages.length - 1);
    // What follows the end of the last turn is never sampled.
    const text = last !== undefined && "end" in last ? whole.slice(0, last.end) : whole;
    const places = new Map(answers);
    for (const index of learntIndexes) {
      const place = places.get(index) ?? placeOfWords(this.#format, messages, index, whole);
      if ("why" in place) throw new TinkerError(`messages[${index}] cannot be learnt: ${place.why}`);
      places.set(index, place);
    }
    const pieces = this.#pieces(text, places);
    const tokens = tokensOf(pieces);
    if (places.size > answers.size && !isSame(tokens, tokensOf(this.#pieces(text, answers)))) {
      throw new TinkerError(
        "The words of others cannot be learnt here: one token reaches over where they begin or end.",
      );
    }
    const weights = pieces.flatMap((piece) => {
      const isLearnt =
        trainOn === "all_tokens" || (piece.index !== undefined && learntIndexes.has(piece.index));
      return piece.tokens.map(() => (isLearnt ? 1 : 0));
    });
    const { bosToken } = this.tokenizer;
    if (bosToken !== undefined && text.startsWith(bosToken)) weights[0] = 0;
    return { input: ModelInput.fromInts(tokens), weights: Float32Array.from(weights) };
  }

  #answers(text: string, messages: readonly Message[]): ReadonlyMap<number, Place> {
    return new Map(
      messages.flatMap(({ role }, index) =>
        role === "assistant"
          ? [[index, placeOfAnswer(this.#format, messages, index, () => text)] as const]
          : [],
      ),
    );
  }

  /** The tokens of a text, cut where answers begin and end: so they are sampled, whatever stands beside them. */
  #pieces(text: string, places: ReadonlyMap<number, Place>): Piece[] {
    const found = [...places].flatMap(([index, place]) => ("why" in place ? [] : [{ index, ...place }]));
    const pieces: Piece[] = [];
    let position = 0;
    for (const { index, start, end } of found.sort((one, other) => one.start - other.start)) {
      pieces.push({ tokens: this.encode(text.slice(position, start)) });
      pieces.push({ tokens: this.encode(text.slice(start, end)), index });
      position = end;
    }
    pieces.push({ tokens: this.encode(text.slice(position)) });
    return pieces;
  }

  override parseResponse(tokens: ArrayLike<number>): ParsedResponse {
    const { text, termination } = textBeforeStop(tokens, this.tokenizer, ...this.stopSequences);
    const message = termination === "malformed" ? { role: "assistant", content: text } : this.#read(text);
    return { message, termination };
  }

  protected override parseTruncated(tokens: readonly number[]): ParsedResponse {
    const { text, termination } = textBeforeStop(tokens, this.tokenizer, ...this.stopSequences);
    return { message: this.#read(text), termination };
  }

  protected override get streamPrefix(): string {
    return this.#opensThoughts ? THINK_OPEN : "";
  }

  #read(given: string): Message {
    const [before, behind] = this.#format.padding;
    const start = given.startsWith(before) ? before.length : 0;
    const answer = given.slice(start, given.endsWith(behind) ? given.length - behind.length : given.length);
    const isOpen =
      this.#opensThoughts && !answer.trimStart().startsWith(THINK_OPEN) && answer.includes(THINK_CLOSE);
    const text = isOpen ? THINK_OPEN + answer : answer;
    const parts: ContentPart[] = [];
    const calls: (ToolCall | UnparsedToolCall)[] = [];
    splitAtBlocks(text, this.#blocks, parts, ([rawText, thinking, body]) => {
      if (thinking === undefined) calls.push(readXmlToolCall(body!, rawText));
      else parts.push({ type: "thinking", thinking });
    });
    const unterminated = this.#readsCalls ? unterminatedToolBlock(text, CALL_OPEN, CALL_CLOSE) : undefined;
    if (unterminated !== undefined) calls.push(unterminated);
    return {
      role: "assistant",
      content: withoutFrame(parts, calls.length > 0),
      ...toolCallFields(calls),
    };
  }
}

function isSame(tokens: readonly number[], others: readonly number[]): boolean {
  return tokens.length === others.length && tokens.every((token, index) => token === others[index]);
}

/** Without the newlines that stand around thoughts and before calls. */
function withoutFrame(parts: readonly ContentPart[], hasCalls: boolean): Message["content"] {
  const framed = parts.flatMap((part, index): ContentPart[] => {
    if (part.type === "thinking") {
      const thinking = strip(part.thinking, "\n");
      return thinking === "" ? [] : [{ type: "thinking", thinking }];
    }
    let text = part.type === "text" ? part.text : "";
    if (parts[index - 1]?.type === "thinking") text = stripStart(text, "\n");
    if (hasCalls) text = stripEnd(text, "\n");
    return text === "" ? [] : [{ type: "text", text }];
  });
  return framed.some(({ type }) => type === "thinking") ? framed : textOf({ content: framed });
}
