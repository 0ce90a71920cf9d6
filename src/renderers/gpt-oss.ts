import { harmonyToolText } from "./harmony-tools.js";
import {
  type ContentPart,
  ensureText,
  type Message,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  thinkingOf,
  type UnparsedToolCall,
} from "./messages.js";
import { readArguments, toolCallFields } from "./parsing.js";
import { SPACE, strip } from "./python-text.js";
import type { RenderContext, RenderedMessage, RendererTokenizer } from "./renderer.js";
import { StopTokenRenderer } from "./stop-token-renderer.js";
import type { StreamFormat } from "./stream-parser.js";

/** The role of Harmony's own system message. A `system` message of the user's is written as the developer's. */
const SYSTEM_ROLE = "_gptoss_internal_system";

const BLOCK = /(.*?)<\|message\|>(.*?)(?:<\|(?:end|call|return)\|>|$)/gs;
const CHANNEL = new RegExp(`<\\|channel\\|>((?:(?!${SPACE})[^<])+)`);
const RECIPIENT = new RegExp(`to=((?:(?!${SPACE})[^<])+)`);
const FUNCTIONS = "functions.";

/** How long GPT-OSS thinks. */
export type ReasoningEffort = "low" | "medium" | "high";

/** GPT-OSS in the Harmony format: an answer is a row of blocks on channels, and thoughts stay in the history. */
export class GptOssRenderer extends StopTokenRenderer {
  readonly #system: readonly Message[];

  /** With an effort, Harmony's system message comes first; it names the day on which the renderer is made. */
  constructor(
    tokenizer: RendererTokenizer,
    options: {
      readonly effort?: ReasoningEffort | undefined;
      readonly now?: (() => Date) | undefined;
    } = {},
  ) {
    super(tokenizer);
    const { effort, now = () => new Date() } = options;
    this.#system = effort === undefined ? [] : [{ role: SYSTEM_ROLE, content: systemText(effort, now()) }];
  }

  override get stopSequences(): readonly number[] {
    return [this.token("<|return|>"), this.token("<|call|>")];
  }

  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    return [...this.#system, ...messages];
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    return {
      header: this.encode(headerOf(message, context)),
      output: [this.encode(outputOf(message, context.isLast))],
    };
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    const sections = [
      ...(systemPrompt === "" ? [] : [`# Instructions\n\n${systemPrompt}`]),
      ...(tools.length === 0 ? [] : [namespaceText(tools)]),
    ];
    return [
      ...(tools.length === 0 ? [] : [{ role: SYSTEM_ROLE, content: TOOL_ROUTING }]),
      ...(sections.length === 0 ? [] : [{ role: "developer", content: sections.join("\n\n") }]),
    ];
  }

  protected override readMessage(answer: string): Message {
    return readBlocks(answer);
  }

  protected override get streamFormat(): StreamFormat {
    return HARMONY_STREAM;
  }
}

const HARMONY_STREAM: StreamFormat = {
  first: "hidden",
  ends: { hidden: ["<|message|>"], text: ["<|end|>"], thinking: ["<|end|>"] },
  after: (kind, _, header) => (kind === "hidden" ? (contentKind(header) ?? "hidden") : "hidden"),
};

/** What a block holds under its header; undefined for calls and what nobody knows. */
function contentKind(header: string): "text" | "thinking" | undefined {
  if (recipientOf(header)?.startsWith(FUNCTIONS)) return undefined;
  const channel = CHANNEL.exec(header)?.[1];
  if (channel === "analysis") return "thinking";
  return channel === "final" || channel === "commentary" ? "text" : undefined;
}

const recipientOf = (header: string): string | undefined => RECIPIENT.exec(header)?.[1];

const TOOL_ROUTING = "Calls to these tools must go to the commentary channel: 'functions'.";

function systemText(effort: ReasoningEffort, date: Date): string {
  const day = [date.getFullYear(), date.getMonth() + 1, date.getDate()]
    .map((number) => String(number).padStart(2, "0"))
    .join("-");
  return (
    "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n" +
    `Current date: ${day}\n\nReasoning: ${effort}\n\n` +
    "# Valid channels: analysis, commentary, final. Channel must be included for every message."
  );
}

function namespaceText(tools: readonly ToolDeclaration[]): string {
  const types = tools.map(harmonyToolText).join("\n\n");
  return `# Tools\n\n## functions\n\nnamespace functions {\n\n${types}\n\n} // namespace functions`;
}

function headerOf(message: Message, context: RenderContext): string {
  const { role } = message;
  switch (role) {
    case "tool": {
      const called = message.name || calledName(message, context) || "unknown";
      return `<|start|>${called.startsWith(FUNCTIONS) ? "" : FUNCTIONS}${called} to=assistant`;
    }
    case "system":
      return "<|start|>developer";
    case SYSTEM_ROLE:
      return "<|start|>system";
    default:
      return `<|start|>${role}`;
  }
}

/** The function whose call a result answers: that of its id, or the last one where calls have none. */
function calledName({ toolCallId }: Message, { messages, index }: RenderContext): string | undefined {
  const calls = messages.slice(0, index).flatMap(({ toolCalls = [] }) => toolCalls);
  return calls.findLast(({ id }) => id === toolCallId)?.name;
}

function outputOf(message: Message, isLast: boolean): string {
  const { role, content } = message;
  switch (role) {
    case "assistant":
      return answerText(message, isLast);
    case "tool":
      return `<|channel|>commentary<|message|>${ensureText(content)}<|end|>`;
    case "system":
      return `<|message|># Instructions\n\n${ensureText(content)}\n\n<|end|>`;
    default:
      return `<|message|>${ensureText(content)}<|end|>`;
  }
}

/** Thoughts, then calls with their text before them, or the text alone. */
function answerText(message: Message, isLast: boolean): string {
  const { toolCalls = [] } = message;
  const thinking = thinkingOf(message);
  const text = textOf(message);
  const blocks = thinking === "" ? [] : [`<|channel|>analysis<|message|>${thinking}<|end|>`];
  if (toolCalls.length === 0) {
    blocks.push(`<|channel|>final<|message|>${text}${isLast ? "<|return|>" : "<|end|>"}`);
  } else {
    if (text !== "") blocks.push(`<|channel|>commentary<|message|>${text}<|end|>`);
    blocks.push(...toolCalls.map(callText));
  }
  return blocks.join("<|start|>assistant");
}

const callText = ({ name, arguments: given }: ToolCall): string =>
  ` to=functions.${name}<|channel|>commentary <|constrain|>json<|message|>${given}<|call|>`;

/** The blocks of an answer as parts and calls. */
function readBlocks(answer: string): Message {
  const parts: ContentPart[] = [];
  const calls: (ToolCall | UnparsedToolCall)[] = [];
  let isRead = false;
  let position = 0;
  for (const match of answer.matchAll(BLOCK)) {
    position = match.index + match[0].length;
    const start = Math.max(match[1]!.lastIndexOf("<|start|>"), 0);
    const header = match[1]!.slice(start);
    const body = match[2]!;
    const recipient = recipientOf(header);
    const kind = contentKind(header);
    if (recipient?.startsWith(FUNCTIONS)) calls.push(readCall(recipient, body, match[0].slice(start)));
    else if (strip(body) === "") isRead = true;
    else if (kind === "thinking") parts.push({ type: kind, thinking: body });
    else if (kind === "text") parts.push({ type: kind, text: body });
  }
  const rest = answer.slice(position);
  if (rest.includes(`to=${FUNCTIONS}`)) calls.push(emptyCall(rest));
  const content = parts.length > 0 ? parts : isRead || calls.length > 0 ? "" : answer;
  return { role: "assistant", content, ...toolCallFields(calls) };
}

function readCall(recipient: string, body: string, rawText: string): ToolCall | UnparsedToolCall {
  const given = strip(body);
  if (given === "") return emptyCall(rawText);
  return readArguments(given, rawText, { name: recipient.slice(FUNCTIONS.length) });
}

const emptyCall = (rawText: string): UnparsedToolCall => ({
  rawText,
  error: "unterminated tool block: a call's header without its arguments",
});
