import { TinkerError, ValidationError } from "../errors.js";
import type { ImageChunk, ModelInput } from "../wire/index.js";
import { readImage } from "./image-size.js";
import {
  type ContentPart,
  contentParts,
  ensureText,
  type ImagePart,
  type Message,
  type ToolDeclaration,
} from "./messages.js";
import { toolCallFields } from "./parsing.js";
import type { Piece } from "./pieces.js";
import { printPythonJson } from "./python-json.js";
import {
  type ParsedResponse,
  type PromptOptions,
  type RenderContext,
  type RenderedMessage,
  Renderer,
  type RendererTokenizer,
  type SupervisedExample,
  type TrainOn,
} from "./renderer.js";
import type { StreamFormat } from "./stream-parser.js";
import { readTmlCall, tmlCallText, tmlDeclarationText } from "./tml-tools.js";

const TOOL_DECLARATION = "tool_declare";
const MODEL = "<|message_model|>";
const END_OF_BLOCK = "<|end_message|>";
const END_OF_ANSWER = "<|content_model_end_sampling|>";

const AUTHORS: Readonly<Record<string, string>> = {
  user: "<|message_user|>",
  assistant: MODEL,
  system: "<|message_system|>",
  [TOOL_DECLARATION]: "<|message_system|>",
  tool: "<|message_tool|>",
};

const KINDS = {
  text: "<|content_text|>",
  thinking: "<|content_thinking|>",
  call: "<|content_invoke_tool_json|>",
  tools: "<|content_xml|>",
  image: "<|content_image|>",
} as const;

/** An image is cut into tiles of this width and height. */
const TILE_PIXELS = 40;

/** What a message is made of: each block stands under its author again. */
interface Block<Body = string | ImagePart> {
  readonly kind: keyof typeof KINDS;
  /** Of a call or a result: the function. */
  readonly name: string;
  readonly body: Body;
}

const LEARNING_MODES: readonly TrainOn[] = [
  "last_assistant_message",
  "last_assistant_turn",
  "all_assistant_messages",
  "customized",
];

/** Inkling's format. The model writes the sign of its own turn too, and the prompt says how much it should think. */
export class TmlV0Renderer extends Renderer {
  readonly #effort: Message;

  /** `effort` is how much the model thinks, in hundredths from 0 to 0.99. Default: 0.9. */
  constructor(tokenizer: RendererTokenizer, { effort = 0.9 }: { readonly effort?: number | undefined } = {}) {
    super(tokenizer);
    if (!(effort >= 0 && effort < 1) || Number(effort.toFixed(2)) !== effort) {
      throw new ValidationError("effort", `effort must be hundredths from 0 to 0.99, got ${effort}`);
    }
    this.#effort = { role: "system", content: `Thinking effort level: ${effort}` };
  }

  override get hasExtensionProperty(): boolean {
    return true;
  }

  override get stopSequences(): readonly number[] {
    return [this.token(END_OF_ANSWER)];
  }

  /** The effort is told behind the system messages at the beginning. */
  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    const first = messages.findIndex((message) => !isSystem(message) && blocksOf(message).length > 0);
    return messages.toSpliced(first === -1 ? messages.length : first, 0, this.#effort);
  }

  override buildPrompt(messages: readonly Message[], options: PromptOptions = {}): ModelInput {
    if ((options.role ?? "assistant") !== "assistant" || options.prefill !== undefined) {
      throw new TinkerError(
        "In this format a prompt ends before the answer: it takes no role and no prefill.",
      );
    }
    return super.buildPrompt(messages);
  }

  protected override promptSuffix(): readonly number[] {
    return [];
  }

  protected override renderMessage(message: Message): RenderedMessage {
    const blocks = blocksOf(message);
    const pieces = blocks.flatMap(({ kind, name, body }): Piece[] => [
      [this.token(AUTHORS[message.role]!), ...this.#ordinary(name), this.token(KINDS[kind])],
      typeof body === "string" ? this.#ordinary(body) : imageChunk(body),
      [this.token(END_OF_BLOCK)],
    ]);
    if (message.role === "assistant" && blocks.length > 0) pieces.push([this.token(END_OF_ANSWER)]);
    return { header: [], output: pieces };
  }

  /** Signs of the format that are written in a text stay text. */
  #ordinary(text: string): readonly number[] {
    return this.tokenizer.encode(text, { addSpecialTokens: false, splitSpecialTokens: true });
  }

  /** None where nothing is learnt, else one, which ends with the last answer that is. */
  override buildSupervisedExamples(
    messages: readonly Message[],
    trainOn: TrainOn = "all_assistant_messages",
  ): readonly SupervisedExample[] {
    if (!LEARNING_MODES.includes(trainOn)) {
      throw new ValidationError(
        "trainOn",
        `trainOn must be one of ${LEARNING_MODES.join(", ")} here, got ${trainOn}`,
      );
    }
    const isLearnt = messages.map((message) => {
      const isWanted = trainOn !== "customized" || message.trainable !== false;
      return blocksOf(message).length > 0 && message.role === "assistant" && isWanted;
    });
    const lastAnswer = messages.findLastIndex(({ role }) => role === "assistant");
    const last =
      trainOn === "last_assistant_message" && !isLearnt[lastAnswer] ? -1 : isLearnt.lastIndexOf(true);
    return last === -1 ? [] : [super.buildSupervisedExample(messages.slice(0, last + 1), trainOn)];
  }

  override buildSupervisedExample(
    messages: readonly Message[],
    trainOn: TrainOn = "all_assistant_messages",
  ): SupervisedExample {
    const [example] = this.buildSupervisedExamples(messages, trainOn);
    if (example === undefined) throw new TinkerError("The conversation holds no answer that is learnt.");
    return example;
  }

  protected override isTrained(message: Message, context: RenderContext, trainOn: TrainOn): boolean {
    return message.role === "assistant" && super.isTrained(message, context, trainOn);
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    const functions = tools.map(({ name, description, parameters }) => ({
      type: "function",
      function: { name, description, parameters },
    }));
    const content = printPythonJson(functions, { separators: [",", ":"] });
    return [
      ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
      ...(tools.length === 0 ? [] : [{ role: TOOL_DECLARATION, content }]),
    ];
  }

  override parseResponse(given: ArrayLike<number>): ParsedResponse {
    const tokens = Array.from(given);
    const end = tokens.indexOf(this.token(END_OF_ANSWER));
    if (end !== -1 && tokens.lastIndexOf(this.token(END_OF_ANSWER)) !== end) {
      throw new TinkerError(
        "The answer holds its stop token more than once: it was sampled without the renderer's stopSequences.",
      );
    }
    const { blocks, isWhole } = this.#readBlocks(end === -1 ? tokens : tokens.slice(0, end));
    return blocks.length === 0
      ? { message: { role: "assistant", content: this.tokenizer.decode(tokens) }, termination: "malformed" }
      : { message: readAnswer(blocks), termination: isWhole && end !== -1 ? "stop_sequence" : "malformed" };
  }

  /** The blocks up to where the tokens break off or break the format; nobody but the model speaks in an answer. */
  #readBlocks(tokens: readonly number[]): {
    readonly blocks: readonly Block<string>[];
    readonly isWhole: boolean;
  } {
    const signs = new Set([...Object.values(AUTHORS), END_OF_BLOCK].map((text) => this.token(text)));
    const kinds = new Map(ANSWER_KINDS.map((kind) => [this.token(KINDS[kind]), kind]));
    const blocks: Block<string>[] = [];
    let position = 0;
    while (position < tokens.length) {
      const start = tokens[position] === this.token(MODEL) ? position + 1 : position;
      const sign = tokens.findIndex(
        (token, index) => index >= start && (kinds.has(token) || signs.has(token)),
      );
      const kind = kinds.get(tokens[sign]!);
      const end = tokens.indexOf(this.token(END_OF_BLOCK), sign + 1);
      if (kind === undefined || end === -1) return { blocks, isWhole: false };
      const text = (from: number, to: number) => this.tokenizer.decode(tokens.slice(from, to));
      blocks.push({ kind, name: text(start, sign), body: text(sign + 1, end) });
      position = end + 1;
    }
    return { blocks, isWhole: true };
  }

  protected override get streamFormat(): StreamFormat {
    return BLOCK_STREAM;
  }
}

const BLOCK_STREAM: StreamFormat = {
  first: "hidden",
  ends: {
    hidden: [KINDS.text, KINDS.thinking],
    text: [END_OF_BLOCK],
    thinking: [END_OF_BLOCK],
  },
  after: (kind, sign) => {
    if (kind !== "hidden") return "hidden";
    return sign === KINDS.text ? "text" : "thinking";
  },
};

const ANSWER_KINDS = ["text", "thinking", "call"] as const;

const isSystem = ({ role }: Message): boolean => role === "system" || role === TOOL_DECLARATION;

function blocksOf({ role, content, name = "", toolCalls = [] }: Message): readonly Block[] {
  if (!Object.hasOwn(AUTHORS, role)) {
    const roles = Object.keys(AUTHORS).join(", ");
    throw new ValidationError("role", `role must be one of ${roles}, got ${JSON.stringify(role)}`);
  }
  if (role === TOOL_DECLARATION) {
    return [{ kind: "tools", name: TOOL_DECLARATION, body: tmlDeclarationText(ensureText(content)) }];
  }
  const isShown = (part: ContentPart) => toolCalls.length === 0 || part.type !== "text" || part.text !== "";
  return [
    ...contentParts(content)
      .filter(isShown)
      .map((part) => partBlock(part, role === "tool" ? name : "")),
    ...toolCalls.map((call): Block => ({ kind: "call", name: call.name, body: tmlCallText(call) })),
  ];
}

function partBlock(part: ContentPart, name: string): Block {
  switch (part.type) {
    case "text":
      return { kind: "text", name, body: part.text };
    case "thinking":
      return { kind: "thinking", name, body: part.thinking };
    case "image":
      return { kind: "image", name, body: part };
    default:
      return part satisfies never;
  }
}

/** Rows hold one place more than the whole tiles in the width. */
function imageChunk(part: ImagePart): ImageChunk {
  const { data, format, width, height } = readImage(part);
  const expectedTokens = (Math.floor(width / TILE_PIXELS) + 1) * Math.ceil(height / TILE_PIXELS);
  return { type: "image", data, format, expectedTokens };
}

/** Text alone is a string; other answers are parts. */
function readAnswer(blocks: readonly Block<string>[]): Message {
  const parts = blocks.flatMap(({ kind, body }): ContentPart[] => {
    if (kind === "thinking") return [{ type: "thinking", thinking: body }];
    return kind === "text" ? [{ type: "text", text: body }] : [];
  });
  const [first] = parts;
  const calls = blocks
    .filter(({ kind }) => kind === "call")
    .map(({ name, body }, index) => readTmlCall({ name, body, rawText: name + KINDS.call + body }, index));
  return {
    role: "assistant",
    content: parts.length === 1 && first?.type === "text" ? first.text : parts,
    ...toolCallFields(calls),
  };
}
