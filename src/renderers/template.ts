import { TinkerError, ValidationError } from "../errors.js";
import { stepsTaken } from "../tokenizers/jinja/budget.js";
import * as f from "../wire/fields/index.js";
import { isRecord, ModelInput } from "../wire/index.js";
import { type CallForm, jsonArguments, jsonHead, plain, sign } from "./answer-shape.js";
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
  COMMON_ROLES,
  checkTrainable,
  contexts,
  type ParsedResponse,
  type PromptOptions,
  promptOptions,
  type RenderContext,
  type RenderedMessage,
  Renderer,
  type RendererTokenizer,
  type SupervisedExample,
  type TrainOn,
} from "./renderer.js";
import { PROBE, TemplateFormat, type TemplateTokenizer, TOOL_DECLARE } from "./template-format.js";
import { type Place, placeOfAnswer, placeOfWords } from "./template-places.js";
import { readXmlToolCall, XML_CALLS } from "./xml-tools.js";

const THINK_OPEN = "<think>";
const THINK_CLOSE = "</think>";
const CALL_OPEN = "<tool_call>";
const CALL_CLOSE = "</tool_call>";

/**
 * Steps of the template that may be spent on finding the answers in one prompt. Each is found by writing the conversation up to
 * it, so the work grows with the square of their number.
 */
const MAX_PLACE_STEPS = 400_000;

/** How a renderer reads its template. */
export interface TemplateRendererOptions {
  /** Template variables in addition to the messages, such as `{ enable_thinking: false }`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
  /** The day for templates that write the date, asked once: prompts do not change during a run. Default: today. */
  readonly now?: (() => Date) | undefined;
}

const TEMPLATE_OPTIONS = f.optionTable({
  variables: f.withDefault(f.value<Readonly<Record<string, unknown>>>("an object", isRecord), {}),
  now: f.withDefault(f.functionOf<() => Date>(), () => new Date()),
} satisfies f.FieldsOf<TemplateRendererOptions>);

/**
 * A renderer for any model with a chat template. The text that the template writes before an answer is the prompt, and the
 * text from there to the token that ends the turn is trained on. If a prompt opens a thought that the template leaves out
 * of its answers, the answer begins after it. Control tokens that are typed in a message are
 * plain text. An answer that the template writes otherwise later on is refused within the longer conversation;
 * `buildSupervisedExamples` makes an example of its own of each.
 */
export function templateRenderer(
  tokenizer: RendererTokenizer,
  options: TemplateRendererOptions = {},
): Renderer {
  const { variables, now } = TEMPLATE_OPTIONS.check(options, "templateRenderer");
  const { applyChatTemplate, hasChatTemplate } = tokenizer as Partial<TemplateTokenizer> & {
    readonly hasChatTemplate?: boolean;
  };
  if (applyChatTemplate === undefined || hasChatTemplate === false) {
    throw new ValidationError(
      "tokenizer",
      "tokenizer must have a chat template for this renderer; take one of the others by its name",
    );
  }
  const day = now();
  return new TemplateRenderer(tokenizer as TemplateTokenizer, variables, () => day);
}

/** Part of a text in tokens, and the message that it belongs to. */
interface Piece {
  readonly tokens: readonly number[];
  readonly index?: number;
}

const tokensOf = (pieces: readonly Piece[]): number[] => pieces.flatMap(({ tokens }) => tokens);

class TemplateRenderer extends Renderer {
  readonly #format: TemplateFormat;
  readonly #opensThoughts: boolean;
  readonly #readsCalls: boolean;
  /** The blocks of an answer besides its text: thoughts first, then calls. */
  readonly #blocks: RegExp;
  readonly #extends: boolean;

  constructor(tokenizer: TemplateTokenizer, variables: Readonly<Record<string, unknown>>, now: () => Date) {
    const format = new TemplateFormat(tokenizer, variables, now);
    super(tokenizer, { thinking: format.takesThoughts ? "enabled" : "absent" });
    this.#format = format;
    const { question, thoughtful, calling } = PROBE;
    this.#opensThoughts = this.#format.write([question], true).trimEnd().endsWith(THINK_OPEN);
    const readsThoughts =
      this.#opensThoughts ||
      (this.#format.takesThoughts && this.#writes([question, thoughtful], THINK_CLOSE));
    this.#readsCalls = this.#format.takesCalls && this.#writes([question, calling], CALL_OPEN);
    const [thoughts, calls] = [readsThoughts ? THINK_OPEN : "(?!)", this.#readsCalls ? CALL_OPEN : "(?!)"];
    this.#blocks = new RegExp(`${thoughts}(.*?)${THINK_CLOSE}|${calls}(.*?)${CALL_CLOSE}`, "gs");
    this.#extends = this.#findExtensionProperty();
    format.endProbing();
  }

  #writes(messages: readonly Message[], tag: string): boolean {
    const [question] = messages;
    return this.#format
      .write(messages, false)
      .slice(this.#format.write([question!], false).length)
      .includes(tag);
  }

  override get roles(): readonly string[] {
    return [...COMMON_ROLES, TOOL_DECLARE, ...this.#format.ownRoles()];
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
      const write = () =>
        (later.length === 0 ? this.#format.writeAnswered(messages) : undefined) ??
        this.#format.write(messages, later.length > 0);
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

  /** As the template writes a call itself. */
  override get callForm(): CallForm | undefined {
    if (!this.#readsCalls) return undefined;
    const { question, calling } = PROBE;
    const written = this.#format.write([question, calling], false);
    const close = written.lastIndexOf(CALL_CLOSE);
    const call = written.slice(written.lastIndexOf(CALL_OPEN, close), close + CALL_CLOSE.length);
    const [before, middle, inner, tail] =
      /^(.*?)probe_tool(.*?)(\{\s*"probe_key"\s*:\s*1\s*\}|<parameter=probe_key>\s*1\s*<\/parameter>\n?)(.*)$/s
        .exec(call)
        ?.slice(1) ?? [];
    if (before === undefined) return undefined;
    const isJson = inner!.startsWith("{");
    return {
      thoughtsEnd: this.#opensThoughts ? `${THINK_CLOSE}\n\n` : undefined,
      frame: ["", ""],
      between: "\n",
      head: (name) => (isJson ? jsonHead(before, name, middle!) : [sign(before), plain(name), sign(middle!)]),
      arguments: isJson ? jsonArguments : XML_CALLS.arguments,
      tail: tail!,
      takesPrefill: true,
    };
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    return [
      { role: TOOL_DECLARE, content: JSON.stringify(tools) },
      ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
    ];
  }

  override buildPrompt(given: readonly Message[], options: PromptOptions = {}): ModelInput {
    const { role, prefill } = promptOptions(options);
    if (role !== "assistant") {
      throw new ValidationError(
        "role",
        `role must be "assistant": a chat template writes answers of the assistant only, got "${role}"`,
      );
    }
    const messages = this.#format.hideTyped(given);
    const text = this.#format.write(messages, true);
    const tokens = tokensOf(this.#pieces(text, this.#newestAnswers(text, messages)));
    return ModelInput.fromInts(prefill === undefined ? tokens : [...tokens, ...this.encode(prefill)]);
  }

  override buildSupervisedExample(
    given: readonly Message[],
    trainOn: TrainOn = "last_assistant_message",
  ): SupervisedExample {
    checkTrainable(given, trainOn);
    const messages = this.#format.hideTyped(given);
    const context = contexts(messages, this.turnStart(messages.slice(0, -1)));
    const learntIndexes = new Set(
      trainOn === "all_tokens"
        ? []
        : [...messages.keys()].filter((index) => this.#isTrained(messages[index]!, context(index), trainOn)),
    );
    const isAnswered = messages.at(-1)?.role === "assistant";
    const whole =
      (isAnswered ? this.#format.writeAnswered(messages) : undefined) ?? this.#format.write(messages, false);
    const answers = this.#answers(whole, messages);
    const last = answers.get(messages.length - 1);
    // Tokens after the end of the last turn are never sampled.
    const text = last !== undefined && "end" in last ? whole.slice(0, last.end) : whole;
    const places = new Map(answers);
    for (const index of learntIndexes) {
      const place = places.get(index) ?? placeOfWords(this.#format, messages, index, whole);
      if ("why" in place) throw new TinkerError(`messages[${index}] cannot be trained on: ${place.why}`);
      places.set(index, place);
    }
    const pieces = this.#pieces(text, places);
    const tokens = tokensOf(pieces);
    if (places.size > answers.size && !isSame(tokens, tokensOf(this.#pieces(text, answers)))) {
      throw new TinkerError(
        "Messages of other roles cannot be trained on here: this tokenizer joins their first or last letters with the template's signs in one token.",
      );
    }
    const weights = pieces.flatMap((piece) => {
      const isLearnt =
        trainOn === "all_tokens"
          ? messages[piece.index ?? -1]?.weight !== 0
          : piece.index !== undefined && learntIndexes.has(piece.index);
      return piece.tokens.map(() => (isLearnt ? 1 : 0));
    });
    const { bosToken } = this.tokenizer;
    if (bosToken !== undefined && text.startsWith(bosToken)) weights[0] = 0;
    return { input: ModelInput.fromInts(tokens), weights: Float32Array.from(weights) };
  }

  /** Declared tools are only read, unless they are asked for by name. */
  #isTrained(message: Message, context: RenderContext, trainOn: TrainOn): boolean {
    if (message.role === TOOL_DECLARE && trainOn !== "customized") return false;
    return this.isTrained(message, context, trainOn);
  }

  #answers(text: string, messages: readonly Message[]): ReadonlyMap<number, Place> {
    return new Map(
      answerIndexes(messages).map((index) => [
        index,
        placeOfAnswer(this.#format, messages, index, () => text),
      ]),
    );
  }

  /** The places of as many answers as can be found within the budget, from the last one on. */
  #newestAnswers(text: string, messages: readonly Message[]): ReadonlyMap<number, Place> {
    const places = new Map<number, Place>();
    const lastStep = stepsTaken() + MAX_PLACE_STEPS;
    for (const index of answerIndexes(messages).reverse()) {
      if (stepsTaken() > lastStep) break;
      places.set(
        index,
        placeOfAnswer(this.#format, messages, index, () => text),
      );
    }
    return places;
  }

  /** The tokens of a text, divided where answers begin and end, because answers are sampled separately. */
  #pieces(text: string, places: ReadonlyMap<number, Place>): Piece[] {
    const found = [...places].flatMap(([index, place]) => ("why" in place ? [] : [{ index, ...place }]));
    const pieces: Piece[] = [];
    let position = 0;
    for (const { index, start, end } of found.sort((one, other) => one.start - other.start)) {
      pieces.push({ tokens: this.#format.encode(text.slice(position, start)) });
      pieces.push({ tokens: this.#format.encode(text.slice(start, end)), index });
      position = end;
    }
    pieces.push({ tokens: this.#format.encode(text.slice(position)) });
    return pieces;
  }

  override parseResponse(tokens: ArrayLike<number>, tools?: readonly ToolDeclaration[]): ParsedResponse {
    const { text, termination } = textBeforeStop(tokens, this.tokenizer, ...this.stopSequences);
    const message =
      termination === "malformed" ? { role: "assistant", content: text } : this.#read(text, tools);
    return { message, termination };
  }

  protected override parseTruncated(
    tokens: readonly number[],
    tools?: readonly ToolDeclaration[],
  ): ParsedResponse {
    const { text, termination } = textBeforeStop(tokens, this.tokenizer, ...this.stopSequences);
    return { message: this.#read(text, tools), termination };
  }

  protected override get streamPrefix(): string {
    return this.#opensThoughts ? THINK_OPEN : "";
  }

  #read(given: string, tools?: readonly ToolDeclaration[]): Message {
    const [before, behind] = this.#format.padding;
    const start = given.startsWith(before) ? before.length : 0;
    const answer = given.slice(start, given.endsWith(behind) ? given.length - behind.length : given.length);
    const isOpen =
      this.#opensThoughts && !answer.trimStart().startsWith(THINK_OPEN) && answer.includes(THINK_CLOSE);
    const text = isOpen ? THINK_OPEN + answer : answer;
    const parts: ContentPart[] = [];
    const calls: (ToolCall | UnparsedToolCall)[] = [];
    splitAtBlocks(text, this.#blocks, parts, ([rawText, thinking, body]) => {
      if (thinking === undefined) calls.push(readXmlToolCall(body!, rawText, tools));
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

function answerIndexes(messages: readonly Message[]): number[] {
  return [...messages.keys()].filter((index) => messages[index]!.role === "assistant");
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
