import { TinkerError, ValidationError } from "../errors.js";
import type { ImageChunk, ModelInput } from "../wire/index.js";
import { type CallForm, jsonArguments, plain, sign } from "./answer-shape.js";
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
  promptOptions,
  type RenderContext,
  type RenderedMessage,
  Renderer,
  type RendererTokenizer,
  type SupervisedExample,
  type TrainOn,
} from "./renderer.js";
import type { StreamFormat } from "./stream-parser.js";
import type { ReasoningEffort } from "./thinking.js";
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

/** One block of a message; each block repeats its author. */
interface Block<Body = string | ImagePart> {
  readonly kind: keyof typeof KINDS;
  /** The function, for a call or a result. */
  readonly name: string;
  readonly body: Body;
}

const LEARNING_MODES: readonly TrainOn[] = [
  "last_assistant_message",
  "last_assistant_turn",
  "all_assistant_messages",
  "customized",
];

/** The prompt gives the effort as a number. */
const EFFORTS: Readonly<Record<ReasoningEffort, number>> = {
  none: 0,
  minimal: 0.2,
  low: 0.4,
  medium: 0.6,
  high: 0.9,
  xhigh: 0.95,
  max: 0.99,
};

/** Inkling's format. The model writes the sign of its own turn too, and the prompt says how much it should think. */
export class TmlV0Renderer extends Renderer {
  readonly #effort: Message;

  constructor(
    tokenizer: RendererTokenizer,
    { effort = "high" }: { readonly effort?: ReasoningEffort | number | undefined } = {},
  ) {
    super(tokenizer, { thinking: "preserved" });
    const level = typeof effort === "number" ? effort : EFFORTS[effort];
    this.#effort = { role: "system", content: `Thinking effort level: ${level}` };
  }

  override get hasExtensionProperty(): boolean {
    return true;
  }

  override get stopSequences(): readonly number[] {
    return [this.token(END_OF_ANSWER)];
  }

  /** The effort is stated after the first system messages. */
  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    const first = messages.findIndex((message) => !isSystem(message) && blocksOf(message).length > 0);
    return messages.toSpliced(first === -1 ? messages.length : first, 0, this.#effort);
  }

  override buildPrompt(messages: readonly Message[], options: PromptOptions = {}): ModelInput {
    const { role, prefill } = promptOptions(options);
    if (role !== "assistant" || prefill !== undefined) {
      throw new TinkerError(
        "In this format a prompt ends before the answer: it takes no role and no prefill.",
      );
    }
    return super.buildPrompt(messages);
  }

  override get roles(): readonly string[] {
    return Object.keys(AUTHORS);
  }

  protected override promptSuffix(): readonly number[] {
    return [];
  }

  protected override renderMessage(message: Message): RenderedMessage {
    const blocks = blocksOf(message);
    const pieces = blocks.flatMap(({ kind, name, body }): Piece[] => [
      [this.token(AUTHORS[message.role]!), ...this.plainTokens(name), this.token(KINDS[kind])],
      typeof body === "string" ? this.plainTokens(body) : imageChunk(body),
      [this.token(END_OF_BLOCK)],
    ]);
    if (message.role === "assistant" && blocks.length > 0) pieces.push([this.token(END_OF_ANSWER)]);
    return { header: [], output: pieces };
  }

  /** One example, which ends with the last trained answer; none without such an answer. */
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
      const isWanted = message.weight !== 0 && (trainOn !== "customized" || message.trainable !== false);
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
    if (example === undefined) throw new TinkerError("The conversation has no answer to train on.");
    return example;
  }

  protected override isTrained(message: Message, context: RenderContext, trainOn: TrainOn): boolean {
    return message.role === "assistant" && super.isTrained(message, context, trainOn);
  }

  override get callForm(): CallForm {
    return {
      frame: ["", ""],
      between: "",
      head: (name) => [
        sign(MODEL),
        plain(name),
        sign(`${KINDS.call}{"name":`),
        plain(JSON.stringify(name)),
        sign(',"args":'),
      ],
      arguments: jsonArguments,
      tail: `}${END_OF_BLOCK}`,
      takesPrefill: false,
    };
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
    const stop = this.token(END_OF_ANSWER);
    const end = tokens.indexOf(stop);
    const { blocks, isWhole } = this.#readBlocks(end === -1 ? tokens : tokens.slice(0, end));
    if (blocks.length === 0)
      return {
        message: { role: "assistant", content: this.tokenizer.decode(tokens) },
        termination: "malformed",
      };
    const endsOnce = end !== -1 && tokens.lastIndexOf(stop) === end;
    return { message: readAnswer(blocks), termination: isWhole && endsOnce ? "stop_sequence" : "malformed" };
  }

  /** The blocks up to the end of the tokens or the first error; all must be the model's own. */
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
