import { TinkerError } from "../errors.js";
import type { ChatMessage, ChatTemplateOptions } from "../tokenizers/index.js";
import {
  contentParts,
  type Message,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  thinkingOf,
} from "./messages.js";
import type { RendererTokenizer } from "./renderer.js";

/** What a template renderer needs of a tokenizer; those of `tinkerts/tokenizers` that come with a template have it. */
export interface TemplateTokenizer extends RendererTokenizer {
  applyChatTemplate(
    messages: readonly ChatMessage[],
    options: ChatTemplateOptions & { readonly tokenize: false },
  ): string;
}

/** The role of the message that carries declared tools, which a template takes apart from its messages. */
export const TOOL_DECLARE = "tool_declare";

/** Where a template looks for thoughts. */
type ThoughtField = "reasoning_content" | "thinking" | "content";
/** How a template wants calls: the arguments as they are or as an object, and what stands for a text that is empty. */
interface CallForm {
  readonly arguments: "text" | "object";
  readonly noText: "" | null;
}

const CALL_FORMS: readonly CallForm[] = [
  { arguments: "text", noText: "" },
  { arguments: "text", noText: null },
  { arguments: "object", noText: "" },
  { arguments: "object", noText: null },
];

export const PROBE = {
  question: { role: "user", content: "Probe question" },
  answer: { role: "assistant", content: "probe answer" },
  thoughtful: {
    role: "assistant",
    content: [
      { type: "thinking", thinking: "probe thought" },
      { type: "text", text: "probe answer" },
    ],
  },
  calling: {
    role: "assistant",
    content: "",
    toolCalls: [{ id: "probecall", name: "probe_tool", arguments: '{"probe_key": 1}' }],
  },
  result: { role: "tool", content: "probe result", toolCallId: "probecall", name: "probe_tool" },
} as const satisfies Record<string, Message>;

/** How a chat template writes conversations, found by having it write some. */
export class TemplateFormat {
  readonly #tokenizer: TemplateTokenizer;
  readonly #variables: Readonly<Record<string, unknown>>;
  readonly #thoughts: ThoughtField | undefined;
  readonly #calls: CallForm | undefined;
  /** The tokens behind an answer, and their texts. */
  readonly stops: ReadonlyMap<number, string>;
  /** The white space that the template puts around an answer. */
  readonly padding: readonly [before: string, behind: string];

  constructor(tokenizer: TemplateTokenizer, variables: Readonly<Record<string, unknown>>) {
    this.#tokenizer = tokenizer;
    this.#variables = variables;
    this.#thoughts = this.#findThoughts();
    this.#calls = this.#findCalls();
    this.stops = this.#findStops();
    this.padding = this.#findPadding();
  }

  get takesThoughts(): boolean {
    return this.#thoughts !== undefined;
  }

  get takesCalls(): boolean {
    return this.#calls !== undefined;
  }

  /** The text of a conversation, up to where an answer begins with `asksForAnswer`. */
  write(messages: readonly Message[], asksForAnswer: boolean): string {
    return this.#write(messages, asksForAnswer, this.#thoughts, this.#calls);
  }

  #write(
    messages: readonly Message[],
    addGenerationPrompt: boolean,
    thoughts: ThoughtField | undefined,
    calls: CallForm | undefined,
  ): string {
    const tools = messages.filter(({ role }) => role === TOOL_DECLARE).flatMap(readDeclaration);
    const text = this.#tokenizer.applyChatTemplate(
      messages
        .filter(({ role }) => role !== TOOL_DECLARE)
        .map((message) => chatMessage(message, thoughts, calls)),
      {
        tokenize: false,
        addGenerationPrompt,
        variables: this.#variables,
        ...(tools.length > 0 && { tools: tools.map((tool) => ({ type: "function", function: tool })) }),
      },
    );
    const called = messages.flatMap(({ toolCalls = [] }) => toolCalls);
    for (const [kind, named] of [["tools", tools] as const, ["tool calls", called] as const]) {
      const unwritten = named.find(({ name }) => !text.includes(name));
      if (unwritten === undefined) continue;
      throw new TinkerError(
        `This model's chat template has no place for these ${kind}: it leaves out ${unwritten.name}.`,
      );
    }
    return text;
  }

  #findThoughts(): ThoughtField | undefined {
    const { question, thoughtful } = PROBE;
    return (["reasoning_content", "thinking", "content"] as const).find((field) => {
      const has = (messages: readonly Message[]) =>
        attempt(() => this.#write(messages, false, field, undefined))?.includes("probe thought") === true;
      // Any template writes a tag within the text; one that takes it away from history knows what it is.
      return has([question, thoughtful]) && !(field === "content" && has([question, thoughtful, question]));
    });
  }

  #findCalls(): CallForm | undefined {
    const { question, calling } = PROBE;
    const given = calling.toolCalls[0].arguments;
    return CALL_FORMS.find((form) => {
      const text = attempt(() => this.#write([question, calling], false, undefined, form));
      return text?.includes(form.arguments === "text" ? given : "probe_key") === true;
    });
  }

  #findStops(): Map<number, string> {
    const { question, calling } = PROBE;
    const [, behind] = this.#aroundAnswer();
    const [stop] = this.#specialTokens(behind);
    if (stop === undefined) {
      throw new TinkerError(
        "This model's chat template ends its turns nowhere: it writes no special token behind an answer, so nothing " +
          "would tell a model to stop.",
      );
    }
    const stops = new Map([stop]);
    if (this.takesCalls) {
      const call = this.write([question, calling], false).slice(this.write([question], false).length);
      const last = this.#specialTokens(call).at(-1);
      // Calls may have an end of their own.
      if (last !== undefined && !call.includes(stop[1]) && call.trimEnd().endsWith(last[1]))
        stops.set(...last);
    }
    return stops;
  }

  #findPadding(): readonly [before: string, behind: string] {
    const [before, behind] = this.#aroundAnswer();
    const [stop = ""] = this.stops.values();
    const blank = (text: string) => (text.trim() === "" ? text : "");
    const prompt = this.write([PROBE.question], true);
    return [
      before.startsWith(prompt) ? blank(before.slice(prompt.length)) : "",
      blank(behind.slice(0, behind.indexOf(stop))),
    ];
  }

  #aroundAnswer(): readonly [before: string, behind: string] {
    const { question, answer } = PROBE;
    const text = this.write([question, answer], false);
    const at = text.lastIndexOf(answer.content);
    if (at === -1) throw new TinkerError("This model's chat template does not write the text of an answer.");
    return [text.slice(0, at), text.slice(at + answer.content.length)];
  }

  /** The tokens in a text that no other text could become, with their texts. */
  #specialTokens(text: string): [token: number, text: string][] {
    const tokens = this.#tokenizer.encode(text, { addSpecialTokens: false });
    return tokens.flatMap((token): [number, string][] => {
      const own = this.#tokenizer.decode([token]);
      const split = this.#tokenizer.encode(own, { addSpecialTokens: false, splitSpecialTokens: true });
      return split.length === 1 && split[0] === token ? [] : [[token, own]];
    });
  }
}

/** What a refusal of the template makes undefined: it has no such messages. */
function attempt<T>(write: () => T): T | undefined {
  try {
    return write();
  } catch (error) {
    if (error instanceof TinkerError) return undefined;
    throw error;
  }
}

function readDeclaration(message: Message): readonly ToolDeclaration[] {
  return JSON.parse(textOf(message)) as readonly ToolDeclaration[];
}

function chatMessage(
  message: Message,
  thoughts: ThoughtField | undefined,
  calls: CallForm | undefined,
): ChatMessage {
  const { role, toolCalls, toolCallId, name } = message;
  checkOrder(message);
  const [text, thinking] = [textOf(message), thinkingOf(message)];
  const content =
    (thoughts === "content" && thinking !== "" ? `<think>\n${thinking}\n</think>\n\n` : "") + text;
  return {
    role,
    content: content === "" && toolCalls !== undefined && calls !== undefined ? calls.noText : content,
    ...(thinking !== "" && thoughts !== undefined && thoughts !== "content" && { [thoughts]: thinking }),
    ...(toolCalls !== undefined &&
      calls !== undefined && { tool_calls: toolCalls.map((call) => chatCall(call, calls)) }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
    ...(name !== undefined && { name }),
  };
}

function chatCall({ id, name, arguments: given }: ToolCall, form: CallForm): object {
  return {
    type: "function",
    ...(id !== undefined && { id }),
    function: { name, arguments: form.arguments === "text" ? given : exactObject(name, given) },
  };
}

/** Templates know thoughts, and then text. */
function checkOrder({ role, content }: Message): void {
  const kinds = contentParts(content).map(({ type }) => type);
  if (
    !kinds.includes("image") &&
    !(kinds.lastIndexOf("thinking") > kinds.indexOf("text") && kinds.includes("text"))
  )
    return;
  throw new TinkerError(
    `content must be thoughts followed by text for a chat template, got ${kinds.join(", ")} in a message of ${role}`,
  );
}

/** A template prints objects as JavaScript has them; what that would change is refused. */
function exactObject(name: string, given: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(given);
  } catch (error) {
    throw new TinkerError(`The arguments of the call to ${name} must be JSON, got ${given}`, {
      cause: error,
    });
  }
  const plain = given.replace(/"(?:[^"\\]|\\.)*"|\s+/g, (piece) =>
    piece.startsWith('"') ? JSON.stringify(JSON.parse(piece)) : "",
  );
  if (JSON.stringify(value) === plain) return value;
  throw new TinkerError(
    `This model's chat template prints arguments itself, and would print ${JSON.stringify(value)} for ${plain} in the ` +
      `call to ${name}. Write numbers as JavaScript does, and no keys twice or made of digits.`,
  );
}
