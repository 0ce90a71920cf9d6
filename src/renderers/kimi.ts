import type { ImageChunk } from "../wire/index.js";
import { type CallForm, jsonArguments, plain, sign } from "./answer-shape.js";
import { readImage } from "./image-size.js";
import { formatText, joinMarkup, type Markup, markup } from "./markup.js";
import {
  contentParts,
  ensureText,
  type ImagePart,
  type Message,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  thinkingOf,
  type UnparsedToolCall,
} from "./messages.js";
import { readArguments, thinkingBlocks, toolCallFields, unterminatedToolBlock } from "./parsing.js";
import type { Piece } from "./pieces.js";
import { printPythonJson } from "./python-json.js";
import { strip } from "./python-text.js";
import {
  COMMON_ROLES,
  type RenderContext,
  type RenderedMessage,
  type SupervisedExample,
  type TrainOn,
} from "./renderer.js";
import { StopTokenRenderer } from "./stop-token-renderer.js";
import { kimiToolsText } from "./typescript-tools.js";

const DEFAULT_SYSTEM_PROMPT = "You are Kimi, an AI assistant created by Moonshot AI.";

const CALLS_OPEN = "<|tool_calls_section_begin|>";
const CALL_NUMBER = { type: "json", schema: { type: "integer", minimum: 0, maximum: 999 } } as const;
const TOOL_DECLARATION = "tool_declare";

/** Constants of Kimi's image processor. */
const PATCH_PIXELS = 14;
const MERGED_PATCHES = 2;
const MAX_PATCHES = 16_384;
const MAX_PATCHES_PER_SIDE = 512;

/** The models write both spellings. */
const SECTION =
  /<\|tool_calls_section_begin\|>(.*?)<\|tool_calls_section_end\|>|<\|tool_call_section_begin\|>(.*?)<\|tool_call_section_end\|>/s;
const CALL =
  /<\|tool_call_begin\|>((?:(?!<\|tool_call_begin\|>).)*?)<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>/gs;
const CALL_ID = /^[^<]+:\p{Nd}+$/u;
const BLOCKS = ["tool_calls_section", "tool_call_section", "tool_call"];

/** Kimi K2 Thinking. Thoughts of former turns are written as an empty block. */
export class KimiK2Renderer extends StopTokenRenderer {
  override get stopSequences(): readonly number[] {
    return [this.token("<|im_end|>")];
  }

  override get roles(): readonly string[] {
    return [...COMMON_ROLES, TOOL_DECLARATION];
  }

  /** System message that the template adds if there is none. */
  protected get defaultSystemPrompt(): string {
    return DEFAULT_SYSTEM_PROMPT;
  }

  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    const place = messages[0]?.role === TOOL_DECLARATION ? 1 : 0;
    const { defaultSystemPrompt: content } = this;
    if (messages[place]?.role === "system" || content === "") return messages;
    return messages.toSpliced(place, 0, { role: "system", content });
  }

  /** The turn is the whole exchange with tools: it begins behind the last answer that called none. */
  protected override turnStart(messages: readonly Message[]): number {
    return messages.findLastIndex((message) => message.role === "assistant" && !hasCalls(message)) + 1;
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    return {
      header: this.encode(headerOf(message)),
      output:
        message.role === "assistant"
          ? [this.encode(this.#answer(message, context))]
          : this.renderContent(message.content),
    };
  }

  #answer(message: Message, { inLastAssistantTurn }: RenderContext): Markup {
    const thinking = inLastAssistantTurn || this.thinking === "preserved" ? thinkingOf(message) : "";
    return markup`<think>${thinking}</think>${textOf(message)}${callsMarkup(message.toolCalls ?? [])}<|im_end|>`;
  }

  protected renderContent(content: Message["content"]): readonly Piece[] {
    return [this.encode(markup`${ensureText(content)}<|im_end|>`)];
  }

  /** One example per user turn, since earlier turns lose their thoughts and a turn may have several messages. */
  override buildSupervisedExamples(
    messages: readonly Message[],
    trainOn: TrainOn = "last_assistant_turn",
  ): readonly SupervisedExample[] {
    if (trainOn === "last_assistant_message" || trainOn === "last_assistant_turn") {
      return [this.buildSupervisedExample(messages, trainOn)];
    }
    const userTurns = messages.flatMap(({ role }, index) => (role === "user" ? [index] : []));
    const mode = trainOn === "all_assistant_messages" ? "last_assistant_turn" : trainOn;
    return [...userTurns.slice(1), messages.length].map((end) =>
      this.buildSupervisedExample(messages.slice(0, end), mode),
    );
  }

  override get callSign(): string {
    return CALLS_OPEN;
  }

  override get callForm(): CallForm {
    return {
      thoughtsEnd: this.streamPrefix === "" ? undefined : "</think>",
      frame: [this.openedBlock + CALLS_OPEN, "<|tool_calls_section_end|>"],
      between: "",
      head: (name) => [sign("<|tool_call_begin|>functions."), plain(name), sign(":")],
      arguments: (tool) => ({
        type: "sequence",
        parts: [CALL_NUMBER, sign("<|tool_call_argument_begin|>"), jsonArguments(tool)],
      }),
      tail: "<|tool_call_end|>",
      takesPrefill: true,
    };
  }

  /** The empty block of thoughts that an answer without them begins with, where the prompt does not write it. */
  protected get openedBlock(): string {
    return "<think></think>";
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt?: string): readonly Message[] {
    const given = this.isCookbook ? systemPrompt || undefined : systemPrompt;
    const content = given ?? this.defaultSystemPrompt;
    return [
      ...(tools.length === 0 ? [] : [{ role: TOOL_DECLARATION, content: this.toolsText(tools) }]),
      ...(given === undefined && content === "" ? [] : [{ role: "system", content }]),
    ];
  }

  protected toolsText(tools: readonly ToolDeclaration[]): string {
    const functions = tools.map((tool) => ({ type: "function", function: tool }));
    return printPythonJson(functions, {
      separators: [",", ":"],
      sortKeys: true,
      ensureAscii: this.isCookbook,
    });
  }

  /** Text before the first section of calls, with its thoughts; the calls; and blocks that were left open. */
  protected override readMessage(answer: string): Message {
    const section = SECTION.exec(answer);
    const text = answer.slice(0, section?.index);
    const calls = Array.from((section?.[1] ?? section?.[2] ?? "").matchAll(CALL), readCall);
    const open = BLOCKS.map((name) => unterminatedToolBlock(answer, `<|${name}_begin|>`, `<|${name}_end|>`));
    const firstOpen = open.find((block) => block !== undefined);
    return {
      role: "assistant",
      content: thinkingBlocks(text) ?? text,
      ...toolCallFields(firstOpen === undefined ? calls : [...calls, firstOpen]),
    };
  }
}

/** Kimi K2.5 and K2.6: the prompt opens the block of thoughts, and tools are declared as TypeScript. */
export class KimiK25Renderer extends KimiK2Renderer {
  protected override get openedBlock(): string {
    return "";
  }

  protected override get defaultSystemPrompt(): string {
    return this.isCookbook ? DEFAULT_SYSTEM_PROMPT : "";
  }

  protected override promptSuffix(role: string, context: RenderContext): readonly number[] {
    const opening = this.thinking === "disabled" ? "<think></think>" : "<think>";
    return [...super.promptSuffix(role, context), ...this.encode(opening)];
  }

  protected override get streamPrefix(): string {
    return this.thinking === "disabled" ? "" : "<think>";
  }

  protected override toolsText(tools: readonly ToolDeclaration[]): string {
    return kimiToolsText(tools);
  }

  /** One text is written with the sign that ends it; several, and images, each for itself. */
  protected override renderContent(content: Message["content"]): readonly Piece[] {
    const parts = contentParts(content);
    if (parts.length === 1 && parts[0]?.type === "text") return super.renderContent(content);
    const pieces = parts.flatMap((part): readonly Piece[] =>
      part.type !== "image"
        ? [this.plainTokens(ensureText([part]))]
        : [
            this.encode("<|media_begin|>image<|media_content|>"),
            imageChunk(part),
            this.encode("<|media_end|>\n"),
          ],
    );
    return [...pieces, this.encode("<|im_end|>")];
  }
}

/** Shrunk until neither the patches nor a side are too many, then filled up to whole tiles; each is a token. */
function imageChunk(part: ImagePart): ImageChunk {
  const { data, format, width, height } = readImage(part);
  const patches = (pixels: number) => Math.max(1, Math.floor(pixels / PATCH_PIXELS));
  const maxSide = MAX_PATCHES_PER_SIDE * PATCH_PIXELS;
  const scale = Math.min(
    1,
    Math.sqrt(MAX_PATCHES / (patches(width) * patches(height))),
    maxSide / width,
    maxSide / height,
  );
  const tiles = (pixels: number) => {
    const shrunk = Math.min(Math.max(1, Math.floor(pixels * scale)), maxSide);
    return Math.ceil(shrunk / (MERGED_PATCHES * PATCH_PIXELS));
  };
  return { type: "image", data, format, expectedTokens: tiles(width) * tiles(height) };
}

const hasCalls = ({ toolCalls = [] }: Message): boolean => toolCalls.length > 0;

function headerOf({ role, name, toolCallId }: Message): Markup {
  switch (role) {
    case "user":
      return markup`<|im_user|>user<|im_middle|>`;
    case "assistant":
      return markup`<|im_assistant|>assistant<|im_middle|>`;
    case "tool":
      return markup`<|im_system|>${name || role}<|im_middle|>## Return of ${toolCallId ?? ""}\n`;
    default:
      return markup`<|im_system|>${role}<|im_middle|>`;
  }
}

function callsMarkup(calls: readonly ToolCall[]): Markup {
  if (calls.length === 0) return formatText("");
  const written = calls.map(({ id, name, arguments: given }, index) => {
    return markup`<|tool_call_begin|>${id || `functions.${name}:${index}`}<|tool_call_argument_begin|>${given}<|tool_call_end|>`;
  });
  return markup`<|tool_calls_section_begin|>${joinMarkup(written)}<|tool_calls_section_end|>`;
}

function readCall([rawText, before, given]: RegExpMatchArray): ToolCall | UnparsedToolCall {
  const id = strip(before!);
  if (!CALL_ID.test(id)) return { rawText, error: "the id of a call must end with a colon and a number" };
  const [path] = id.split(":", 1) as [string];
  return readArguments(strip(given!), rawText, { id, name: path.slice(path.indexOf(".") + 1) });
}
