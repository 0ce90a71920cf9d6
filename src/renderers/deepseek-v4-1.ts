import { TinkerError } from "../errors.js";
import { type CallForm, type MemberForm, plain, sign, taggedArguments } from "./answer-shape.js";
import { ASSISTANT, BOS, EOS, USER } from "./deepseek-v3.js";
import { formatText, joinMarkup, type Markup, markup } from "./markup.js";
import {
  ensureText,
  type Message,
  refuseImages,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  thinkingOf,
  type UnparsedToolCall,
} from "./messages.js";
import { readJson, thinkingBlocks, toolCallFields, unterminatedToolBlock } from "./parsing.js";
import { isJsonObject, type JsonObject, type JsonValue, printPythonJson } from "./python-json.js";
import { strip } from "./python-text.js";
import {
  COMMON_ROLES,
  type RenderContext,
  type RenderedMessage,
  type RendererTokenizer,
} from "./renderer.js";
import { StopTokenRenderer } from "./stop-token-renderer.js";
import type { ReasoningEffort, ThinkingMode } from "./thinking.js";

const SYSTEM = "<｜System｜>";
const MARKUP = "｜DSML｜";
const CALLS_OPEN = `<${MARKUP} calls>`;
const CALLS_CLOSE = `</${MARKUP} calls>`;
const CALL_CLOSE = `</${MARKUP} invoke>`;
const PARAMETER_CLOSE = `</${MARKUP} parameter>`;
const MEMBERS: MemberForm = {
  before: `<${MARKUP} parameter name="`,
  asText: '" string="true">',
  asJson: '" string="false">',
  behind: PARAMETER_CLOSE,
  separator: "\n",
  without: [MARKUP],
};
const CALLS = new RegExp(`(?:\n\n)?${CALLS_OPEN}(.*?)${CALLS_CLOSE}`, "s");
const CALL = new RegExp(`<${MARKUP} invoke name="(.*?)">\n(.*?)${CALL_CLOSE}`, "gs");
const PARAMETER = new RegExp(
  `<${MARKUP} parameter name="(.*?)" string="(true|false)">(.*?)${PARAMETER_CLOSE}`,
  "gs",
);
/** The role of the message that `declareTools` makes: a list of functions as JSON. */
const TOOL_DECLARE = "tool_declare";

/** The prompt gives the effort as a number from 1 to 100. */
const EFFORTS: Readonly<Partial<Record<ReasoningEffort, number>>> = { low: 50, high: 75, max: 100 };
const USUAL_EFFORT = 75;

/** DeepSeek V4.1, with thoughts of a given effort or without. */
export class DeepSeekV41Renderer extends StopTokenRenderer {
  readonly #effort: number;

  /** Thoughts of earlier turns are kept if tools are declared. */
  constructor(tokenizer: RendererTokenizer, mode: ThinkingMode = {}) {
    super(tokenizer, mode);
    this.#effort = (mode.effort && EFFORTS[mode.effort]) ?? USUAL_EFFORT;
  }

  get #thinks(): boolean {
    return this.thinking !== "disabled";
  }

  override get hasExtensionProperty(): boolean {
    return this.thinking !== "enabled";
  }

  override get roles(): readonly string[] {
    return [...COMMON_ROLES, TOOL_DECLARE];
  }

  override get stopSequences(): readonly number[] {
    return [this.token(EOS)];
  }

  protected override get bosTokens(): readonly number[] {
    return this.encode(BOS);
  }

  /** Tools are declared after the system message, which may be empty. */
  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    const declared = messages.findLastIndex(({ role }) => role === TOOL_DECLARE);
    if (declared === 0) return [{ ...messages[0]!, role: "system", content: "" }, ...messages];
    if (declared > 1 || (declared === 1 && messages[0]!.role !== "system")) {
      throw new TinkerError(
        `messages[${declared}] declares tools, which must come first or right behind the first system message.`,
      );
    }
    return messages;
  }

  protected override turnStart(messages: readonly Message[]): number {
    return messages.findLastIndex(({ role }, index) => role === "user" || isLaterSystem(role, index)) + 1;
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    const { index, previous } = context;
    const opening = index === 0 && this.#thinks ? SYSTEM + effortText(this.#effort) : "";
    switch (message.role) {
      case "system":
        return this.#encodedTogether(opening || SYSTEM, systemMarkup(message, context));
      case TOOL_DECLARE:
        return { header: [], output: [] };
      case "user":
      case "tool":
        // The first message of a turn writes it whole.
        if (isUserTurn(previous)) return { header: [], output: [] };
        return { header: this.encode(opening + USER), output: [this.encode(userTurn(context))] };
      case "assistant":
        return this.#renderAnswer(message, context, opening);
      default:
        throw new TinkerError(`DeepSeek V4.1 has no role ${JSON.stringify(message.role)}.`);
    }
  }

  #renderAnswer(message: Message, context: RenderContext, opening: string): RenderedMessage {
    const { index, previous } = context;
    refuseImages(message.content);
    const showsThoughts = this.#thinks && index > this.#lastIndexWithoutThoughts(context.messages);
    const followsTurn =
      isUserTurn(previous) || (previous !== undefined && isLaterSystem(previous.role, index - 1));
    const marker = followsTurn ? ASSISTANT + (showsThoughts ? "<think>" : "</think>") : "";
    const thoughts = showsThoughts ? markup`${thinkingOf(message)}</think>` : formatText("");
    const text = markup`${thoughts}${textOf(message)}${writtenCalls(message.toolCalls ?? [])}`;
    return {
      header: this.encode(opening + marker),
      output: [[...this.encode(text), this.token(EOS)]],
    };
  }

  #lastIndexWithoutThoughts(messages: readonly Message[]): number {
    if (this.thinking === "preserved" || messages.some(({ role }) => role === TOOL_DECLARE)) return -1;
    return messages.findLastIndex(
      (message, index) => isUserTurn(message) || isLaterSystem(message.role, index),
    );
  }

  /** A token may span header and text, as with line breaks on both sides; it counts as header. */
  #encodedTogether(header: string, text: Markup): RenderedMessage {
    const tokens = this.encode(markup`${formatText(header)}${text}`);
    let end = 0;
    while (end < tokens.length && this.tokenizer.decode(tokens.slice(0, end)).length < header.length) end++;
    return { header: tokens.slice(0, end), output: [tokens.slice(end)] };
  }

  override get callSign(): string {
    return CALLS_OPEN;
  }

  override get callForm(): CallForm {
    return {
      thoughtsEnd: this.#thinks ? "</think>" : undefined,
      frame: [`\n\n${CALLS_OPEN}\n`, `\n${CALLS_CLOSE}`],
      between: "\n",
      head: (name) => [sign(`<${MARKUP} invoke name="`), plain(name), sign('">\n')],
      arguments: (tool) => taggedArguments(tool, MEMBERS),
      tail: `\n${CALL_CLOSE}`,
      takesPrefill: true,
    };
  }

  protected override get streamPrefix(): string {
    return this.#thinks ? "<think>" : "";
  }

  protected override readMessage(text: string): Message {
    return readAnswer(text);
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    const functions = tools.map((tool) => ({ type: "function", function: tool }));
    return [
      ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
      ...(tools.length === 0 ? [] : [{ role: TOOL_DECLARE, content: printPythonJson(functions) }]),
    ];
  }
}

function effortText(effort: number): string {
  return `Reasoning Effort: ${effort} (range 1-100, the higher the value, the more thorough the reasoning)\n\n`;
}

function isUserTurn(message: Message | undefined): boolean {
  return message?.role === "user" || message?.role === "tool";
}

/** A system message within the conversation begins a turn, like the user's. */
function isLaterSystem(role: string, index: number): boolean {
  return role === "system" && index > 0;
}

function systemMarkup({ content }: Message, { index, next }: RenderContext): Markup {
  const text = ensureText(content);
  return index === 0 && next?.role === TOOL_DECLARE
    ? markup`${text}\n\n${toolsMarkup(next)}`
    : markup`${text}`;
}

/** Messages of the user and results of tools in a row, the results in the order of their calls. */
function userTurn({ messages, index }: RenderContext): Markup {
  const end = messages.findIndex((message, at) => at > index && !isUserTurn(message));
  const turn = messages.slice(index, end === -1 ? undefined : end);
  const calls = messages.slice(0, index).findLast(({ toolCalls }) => toolCalls?.length)?.toolCalls ?? [];
  const order = new Map(calls.map(({ id }, at) => [id, at]));
  const orderOf = ({ toolCallId }: Message) => (toolCallId ? (order.get(toolCallId) ?? 0) : 0);
  const results = turn.filter(({ role }) => role === "tool").sort((a, b) => orderOf(a) - orderOf(b));
  return joinMarkup(
    turn.map(({ role, content }) =>
      role === "tool"
        ? markup`<tool_result>${ensureText(results.shift()!.content)}</tool_result>`
        : ensureText(content),
    ),
    "\n\n",
  );
}

function writtenCalls(calls: readonly ToolCall[]): Markup {
  if (calls.length === 0) return formatText("");
  const each = calls.map((call) => {
    const parameters = Array.from(argumentsOf(call), ([name, value]) => {
      const isText = typeof value === "string";
      const text = isText ? value : printPythonJson(value, { ensureAscii: false });
      return markup`<｜DSML｜ parameter name="${name}" string="${String(isText)}">${text}</｜DSML｜ parameter>`;
    });
    return markup`<｜DSML｜ invoke name="${call.name}">\n${joinMarkup(parameters, "\n")}\n</｜DSML｜ invoke>`;
  });
  return markup`\n\n<｜DSML｜ calls>\n${joinMarkup(each, "\n")}\n</｜DSML｜ calls>`;
}

/** The arguments by name, also from JSON within a JSON text; a value that is not an object becomes one argument. */
function argumentsOf({ arguments: given }: ToolCall): JsonObject {
  const once = readJson(given).value;
  const value = typeof once === "string" ? readJson(once).value : once;
  return isJsonObject(value) ? value : new Map([["arguments", given]]);
}

function readAnswer(text: string): Message {
  const block = CALLS.exec(text);
  const content = block === null ? text : text.slice(0, block.index);
  const calls = block === null ? [] : readCalls(block[1]!, block[0]);
  const after = block === null ? "" : text.slice(block.index + block[0].length);
  if (strip(after) !== "") calls.push(invalid(after, "text behind the calls"));
  const open = unterminatedToolBlock(content, CALLS_OPEN, CALLS_CLOSE);
  if (open !== undefined) calls.push(open);
  else if (content.includes(MARKUP)) calls.push(invalid(content, "a tag of calls without calls"));
  return { role: "assistant", content: thinkingBlocks(content) ?? content, ...toolCallFields(calls) };
}

const invalid = (rawText: string, reason: string): UnparsedToolCall => ({
  rawText,
  error: `Invalid DSML: ${reason}`,
});

function readCalls(body: string, block: string): (ToolCall | UnparsedToolCall)[] {
  const found = [...body.matchAll(CALL)];
  if (found.length === 0 || strip(body.replace(CALL, "")) !== "") return [invalid(block, "malformed invoke")];
  return found.map(([rawText, name, parameters]) => {
    const read = strip(name!) === "" ? "empty function name" : readParameters(parameters!);
    return typeof read === "string"
      ? invalid(rawText, read)
      : { name: name!, arguments: printPythonJson(read) };
  });
}

/** The arguments, or what is wrong with them. */
function readParameters(text: string): JsonObject | string {
  if (strip(text.replace(PARAMETER, "")) !== "") return "text outside parameters";
  const values = new Map<string, JsonValue>();
  for (const [, name, isText, given] of text.matchAll(PARAMETER)) {
    if (strip(name!) === "") return "empty parameter name";
    if (values.has(name!)) return `duplicate parameter ${name}`;
    const json = isText === "true" ? { value: given! } : readJson(given!);
    if (json.value === undefined) return json.error!;
    values.set(name!, json.value);
  }
  return values;
}

function declaredTools({ content }: Message): readonly JsonValue[] {
  const { value } = readJson(ensureText(content));
  const tools = Array.isArray(value)
    ? value.map((tool) => (isJsonObject(tool) ? tool.get("function") : undefined))
    : [undefined];
  if (tools.every((tool) => tool !== undefined)) return tools;
  throw new TinkerError(`A message of the role ${TOOL_DECLARE} must be one that declareTools made.`);
}

function toolsMarkup(declaration: Message): Markup {
  const schemas = declaredTools(declaration).map((tool) => printPythonJson(tool, { ensureAscii: false }));
  return markup`${formatText(BEFORE_TOOLS)}${schemas.join("\n")}${formatText(BEHIND_TOOLS)}`;
}

const BEFORE_TOOLS = `## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "${CALLS_OPEN}" block like the following:

${CALLS_OPEN}
<${MARKUP} invoke name="$TOOL_NAME">
<${MARKUP} parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE${PARAMETER_CLOSE}
...
${CALL_CLOSE}
<${MARKUP} invoke name="$TOOL_NAME2">
...
${CALL_CLOSE}
${CALLS_CLOSE}

String parameters should be specified as is and set \`string="true"\`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set \`string="false"\`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

`;

const BEHIND_TOOLS = `

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
`;
