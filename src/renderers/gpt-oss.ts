import { type CallForm, jsonArguments, plain, sign } from "./answer-shape.js";
import { cookbookToolText, harmonyToolText } from "./harmony-tools.js";
import { formatText, joinMarkup, type Markup, markup } from "./markup.js";
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
import { readArguments, readJson, type textBeforeStop, toolCallFields } from "./parsing.js";
import { printPythonJson } from "./python-json.js";
import { SPACE, strip } from "./python-text.js";
import {
  COMMON_ROLES,
  type RenderContext,
  type RenderedMessage,
  type RendererTokenizer,
} from "./renderer.js";
import { StopTokenRenderer } from "./stop-token-renderer.js";
import type { StreamFormat } from "./stream-parser.js";
import type { ReasoningEffort, ThinkingMode } from "./thinking.js";

/** The role of Harmony's own system message. A `system` message of the user's is written as the developer's. */
const SYSTEM_ROLE = "_gptoss_internal_system";

const BLOCK = /(.*?)<\|message\|>(.*?)(?:<\|(?:end|call|return)\|>|$)/gs;
const CHANNEL = new RegExp(`<\\|channel\\|>((?:(?!${SPACE})[^<])+)`);
const RECIPIENT = new RegExp(`to=((?:(?!${SPACE})[^<])+)`);
const FUNCTIONS = "functions.";

/** GPT-OSS in the Harmony format: an answer is a row of blocks on channels, and earlier turns lose their thoughts. */
export class GptOssRenderer extends StopTokenRenderer {
  readonly #system: string | undefined;

  /** With an effort, Harmony's system message comes first; it names the day on which the renderer is made. */
  constructor(
    tokenizer: RendererTokenizer,
    {
      effort,
      isCookbook,
      now = () => new Date(),
    }: ThinkingMode & { readonly now?: (() => Date) | undefined } = {},
  ) {
    super(tokenizer, { thinking: isCookbook ? "preserved" : "enabled", isCookbook });
    this.#system = effort && systemText(effort, now());
  }

  override get roles(): readonly string[] {
    return [...COMMON_ROLES, "developer"];
  }

  override get stopSequences(): readonly number[] {
    return [this.token("<|return|>"), this.token("<|call|>")];
  }

  /** Harmony's system message, which says where calls go if tools are declared. */
  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    const hasTools = !this.isCookbook && messages.some(isDeclaration);
    const lines = [this.#system, hasTools ? TOOL_ROUTING : undefined].filter((line) => line !== undefined);
    const isSaid = (message: Message) => this.isCookbook || !isInstruction(message) || textOf(message) !== "";
    return [
      ...(lines.length === 0 ? [] : [{ role: SYSTEM_ROLE, content: lines.join("\n") }]),
      ...messages.filter(isSaid),
    ];
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    return {
      header: this.encode(headerOf(message, context)),
      output: [this.encode(this.#output(message, context))],
    };
  }

  #output(message: Message, context: RenderContext): Markup {
    const { role, content } = message;
    if (role === "assistant") return this.#answer(message, context);
    const text = ensureText(content);
    if (role === "tool") {
      const result = this.isCookbook ? text : printPythonJson(text, { ensureAscii: false });
      return markup`<|channel|>commentary<|message|>${result}<|end|>`;
    }
    const isPlain = this.isCookbook ? role !== "system" : !isInstruction(message) || isDeclaration(message);
    return isPlain
      ? markup`<|message|>${text}<|end|>`
      : markup`<|message|># Instructions\n\n${text}\n\n<|end|>`;
  }

  /** Thoughts, then calls with their text before them, or the text alone. */
  #answer(message: Message, { messages, index, isLast, isPrompt }: RenderContext): Markup {
    const { toolCalls = [] } = message;
    const isProduced = isLast && (this.isCookbook || !isPrompt);
    // Calls keep their thoughts until an answer without calls follows.
    const isOver = messages.slice(index + 1, isPrompt ? undefined : -1).some(isFinal);
    const keepsThoughts = isProduced || this.isCookbook || (toolCalls.length > 0 && !isOver);
    const thinking = keepsThoughts ? thinkingOf(message) : "";
    const text = textOf(message);
    const blocks = thinking === "" ? [] : [markup`<|channel|>analysis<|message|>${thinking}<|end|>`];
    if (toolCalls.length === 0) {
      blocks.push(
        markup`<|channel|>final<|message|>${text}${formatText(isProduced ? "<|return|>" : "<|end|>")}`,
      );
    } else {
      if (text !== "") blocks.push(markup`<|channel|>commentary<|message|>${text}<|end|>`);
      blocks.push(...toolCalls.map((call) => this.#call(call)));
    }
    return joinMarkup(blocks, "<|start|>assistant");
  }

  #call({ name, arguments: given }: ToolCall): Markup {
    if (this.isCookbook)
      return markup` to=functions.${name}<|channel|>commentary <|constrain|>json<|message|>${given}<|call|>`;
    const { value, error } = readJson(given);
    const json = error === undefined ? printPythonJson(value, { ensureAscii: false }) : given;
    return markup` to=functions.${name}<|channel|>commentary json<|message|>${json}<|call|>`;
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    const sections = [
      ...(systemPrompt === "" ? [] : [`# Instructions\n\n${systemPrompt}`]),
      ...(tools.length === 0
        ? []
        : [namespaceText(tools, this.isCookbook ? cookbookToolText : harmonyToolText)]),
    ];
    return [
      ...(tools.length === 0 || !this.isCookbook ? [] : [{ role: SYSTEM_ROLE, content: TOOL_ROUTING }]),
      ...(sections.length === 0 ? [] : [{ role: "developer", content: sections.join("\n\n") }]),
    ];
  }

  /** A call may follow the prompt directly, without thoughts. */
  override get callForm(): CallForm {
    return {
      frame: ["", ""],
      between: undefined,
      head: (name) => [sign(" to=functions."), plain(name), sign("<|channel|>commentary json<|message|>")],
      arguments: jsonArguments,
      tail: "",
      takesPrefill: true,
    };
  }

  protected override readMessage(answer: string): Message {
    return readBlocks(answer, this.isCookbook);
  }

  /** Each of several calls has its own end sign, after which the next one begins; any other sign ends the answer. */
  protected override answerText(tokens: ArrayLike<number>): ReturnType<typeof textBeforeStop> {
    const all = Array.from(tokens);
    const [call, start] = [this.token("<|call|>"), this.token("<|start|>")];
    const last = all.findLastIndex((token, index) => token === call && all[index + 1] === start);
    const { text, termination } = super.answerText(all.slice(last + 1));
    const before = all.slice(0, last + 1);
    const isSound = before.every(
      (token, index) => !this.stopSequences.includes(token) || all[index + 1] === start,
    );
    return {
      text: this.tokenizer.decode(before) + text,
      termination: isSound ? termination : "malformed",
    };
  }

  protected override get streamEndTokens(): readonly number[] {
    return [this.token("<|return|>")];
  }

  protected override get streamFormat(): StreamFormat {
    return HARMONY_STREAM;
  }
}

const isFinal = ({ role, toolCalls = [] }: Message): boolean =>
  role === "assistant" && toolCalls.length === 0;

const isInstruction = ({ role }: Message): boolean => role === "system" || role === "developer";

/** Whether a message is one that `declareTools` made. */
function isDeclaration(message: Message): boolean {
  return message.role === "developer" && textOf(message).endsWith(TOOLS_END);
}

const HARMONY_STREAM: StreamFormat = {
  first: "hidden",
  ends: { hidden: ["<|message|>"], text: ["<|end|>", "<|call|>"], thinking: ["<|end|>", "<|call|>"] },
  after: (kind, _, header) => (kind === "hidden" ? (contentKind(header) ?? "hidden") : "hidden"),
};

/** Content of a block by its header; undefined for calls and unknown kinds. */
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

const TOOLS_END = "} // namespace functions";

function namespaceText(tools: readonly ToolDeclaration[], write: (tool: ToolDeclaration) => string): string {
  const types = tools.map(write).join("\n\n");
  return `# Tools\n\n## functions\n\nnamespace functions {\n\n${types}\n\n${TOOLS_END}`;
}

function headerOf(message: Message, context: RenderContext): Markup {
  const { role } = message;
  switch (role) {
    case "tool": {
      const called = message.name || calledName(message, context) || "unknown";
      return markup`<|start|>${called.startsWith(FUNCTIONS) ? "" : FUNCTIONS}${called} to=assistant`;
    }
    case "system":
      return markup`<|start|>developer`;
    case SYSTEM_ROLE:
      return markup`<|start|>system`;
    default:
      return markup`<|start|>${role}`;
  }
}

/** The function whose call a result answers: that of its id, or the last one where calls have none. */
function calledName({ toolCallId }: Message, { messages, index }: RenderContext): string | undefined {
  const calls = messages.slice(0, index).flatMap(({ toolCalls = [] }) => toolCalls);
  return calls.findLast(({ id }) => id === toolCallId)?.name;
}

/** The blocks of an answer as parts and calls. The Python cookbook leaves out blocks of white space. */
function readBlocks(answer: string, isCookbook: boolean): Message {
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
    else if ((isCookbook ? strip(body) : body) === "") isRead = true;
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
