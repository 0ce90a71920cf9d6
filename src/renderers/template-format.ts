import { TinkerError } from "../errors.js";
import type { ChatMessage, ChatTemplateOptions } from "../tokenizers/index.js";
import { stepsTaken } from "../tokenizers/jinja/budget.js";
import {
  contentParts,
  type Message,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  thinkingOf,
} from "./messages.js";
import { readPythonJson } from "./python-json.js";
import type { RendererTokenizer } from "./renderer.js";
import { TypedSigns } from "./typed-signs.js";

/** Tokenizer that a template renderer needs; those of `tinkerts/tokenizers` with a chat template fit. */
export interface TemplateTokenizer extends RendererTokenizer {
  applyChatTemplate(
    messages: readonly ChatMessage[],
    options: ChatTemplateOptions & { readonly tokenize: false },
  ): string;
}

/** The role of the message with the declared tools, which a template takes separately. */
export const TOOL_DECLARE = "tool_declare";

/** Where a template looks for thoughts. */
type ThoughtField = "reasoning_content" | "thinking" | "content";
/** Tags around a thought, with what stands between them and it. */
const THOUGHT_TAGS = [
  { open: "<think>", close: "\n</think>\n\n" },
  { open: "<|START_THINKING|>", close: "<|END_THINKING|>" },
  { open: "[THINK]", close: "[/THINK]" },
] as const;

/** How a template takes calls: arguments as text or as an object, and the value for an empty text. */
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

/** Total steps of all probes of a template: some dozens of short conversations. */
const MAX_PROBE_STEPS = 250_000;

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

const PROBE_TOOL: ToolDeclaration = {
  name: "probe_tool",
  description: "Probes.",
  parameters: { type: "object" },
};

/** How a chat template writes conversations, learned from examples that it writes. */
export class TemplateFormat {
  readonly #tokenizer: TemplateTokenizer;
  readonly #variables: Readonly<Record<string, unknown>>;
  readonly #now: () => Date;
  readonly #thoughts: ThoughtField | undefined;
  readonly #calls: CallForm | undefined;
  readonly #hasParts: boolean;
  readonly #typed: TypedSigns;
  /** The step at which probing ends. */
  #lastProbeStep = stepsTaken() + MAX_PROBE_STEPS;
  /** End of a prompt that the template leaves out when it writes the answer, such as an opened thought. */
  readonly #opening: string;
  /** Text that closes a thought that the prompt has opened. */
  readonly #closing: string | undefined;
  /** Signs of the next turn, of answers and of calls that the template ends in no other way. */
  #nextSigns: { answer: string; call: string } = { answer: "", call: "" };
  /** The tokens behind an answer, and their texts. */
  readonly stops: ReadonlyMap<number, string>;
  /** Texts that the template writes around an answer. */
  readonly padding: readonly [before: string, behind: string];

  constructor(tokenizer: TemplateTokenizer, variables: Readonly<Record<string, unknown>>, now: () => Date) {
    this.#tokenizer = tokenizer;
    this.#variables = variables;
    this.#now = now;
    this.#hasParts = this.#findParts();
    this.#thoughts = this.#findThoughts();
    this.#calls = this.#findCalls();
    this.#opening = this.#findOpening();
    this.#closing = THOUGHT_TAGS.find(({ open }) => this.#opening.trimEnd().endsWith(open))?.close;
    this.stops = this.#findStops();
    this.padding = this.#findPadding();
    const own = this.#findOwnSigns();
    const tags = THOUGHT_TAGS.flatMap(({ open, close }) => [open, close.trim()]);
    this.#typed = new TypedSigns(
      tokenizer,
      (token) => own.has(token),
      (text) => tags.includes(text),
    );
  }

  /** Ends the limit on steps: the format is known, and conversations may have any length. */
  endProbing(): void {
    this.#lastProbeStep = Number.POSITIVE_INFINITY;
  }

  get takesThoughts(): boolean {
    return this.#thoughts !== undefined || this.#closing !== undefined;
  }

  get takesCalls(): boolean {
    return this.#calls !== undefined;
  }

  /** `developer`, if the template treats it specially; one that writes any role has only the common ones. */
  ownRoles(): readonly string[] {
    const writes = (role: string) =>
      attempt(() => this.write([{ role, content: "probe text" }, PROBE.question], true))?.includes(
        "probe text",
      );
    return writes("developer") && !writes("probe_role") ? ["developer"] : [];
  }

  /** Messages with a sign for each control token that is typed in them; `encode` writes it as plain text. */
  hideTyped(messages: readonly Message[]): readonly Message[] {
    return this.#typed.hide(messages);
  }

  /** The tokens of a text of the template, in which typed control tokens are plain text. */
  encode(text: string): readonly number[] {
    return this.#typed.encode(text);
  }

  /** The text of a conversation, up to where an answer begins with `asksForAnswer`. */
  write(messages: readonly Message[], asksForAnswer: boolean): string {
    return this.#write(messages, asksForAnswer, this.#thoughts, this.#calls);
  }

  /**
   * The text of a conversation that ends with an answer, as the model writes it: behind the prompt that asks for it, to the
   * sign that ends it. Undefined where the template begins the answer otherwise than any prompt.
   */
  writeAnswered(
    messages: readonly Message[],
    prompt = attempt(() => this.write(messages.slice(0, -1), true)),
  ): string | undefined {
    if (prompt === undefined) return undefined;
    const last = messages.at(-1)!;
    const answer = this.#answerBehind(prompt, messages) ?? this.#answerAlone(last);
    if (answer === undefined) return undefined;
    const isEnded = [...this.stops.values()].some((sign) => answer.includes(sign));
    const next = last.toolCalls === undefined ? this.#nextSigns.answer : this.#nextSigns.call;
    return prompt + answer + (isEnded ? "" : next);
  }

  /** Text that the template writes of the last message after its prompt. */
  #answerBehind(prompt: string, messages: readonly Message[]): string | undefined {
    const whole = this.write(messages, false);
    if (whole.startsWith(prompt)) return whole.slice(prompt.length);
    const before = prompt.slice(0, prompt.length - this.#opening.length);
    if (this.#opening === "" || !prompt.endsWith(this.#opening) || !whole.startsWith(before))
      return undefined;
    const close = this.#closing === undefined ? "" : thinkingOf(messages.at(-1)!) + this.#closing;
    return close + whole.slice(before.length);
  }

  /** The answer as the template writes it behind a plain question: some write what comes before it otherwise in a prompt. */
  #answerAlone(message: Message): string | undefined {
    const { question } = PROBE;
    return attempt(() => this.#answerBehind(this.write([question], true), [question, message]));
  }

  #write(
    messages: readonly Message[],
    addGenerationPrompt: boolean,
    thoughts: ThoughtField | undefined,
    calls: CallForm | undefined,
  ): string {
    const tools = messages.filter(({ role }) => role === TOOL_DECLARE).flatMap(readDeclaration);
    const apply = (given: readonly Message[]) =>
      this.#apply(
        given
          .filter(({ role }) => role !== TOOL_DECLARE)
          .map((message) => chatMessage(message, thoughts, calls, this.#hasParts)),
        {
          addGenerationPrompt,
          ...(tools.length > 0 && { tools: tools.map((tool) => ({ type: "function", function: tool })) }),
        },
      );
    const text = apply(messages);
    const called = messages.flatMap(({ toolCalls = [] }) => toolCalls);
    // Names of calls stand in the declarations too: other names show whether the calls themselves are written.
    const renamed = called.length === 0 ? undefined : attempt(() => apply(messages.map(renameCalls)));
    for (const [kind, named, written, suffix] of [
      ["tools", tools, text, ""],
      ["tool calls", called, renamed ?? text, renamed === undefined ? "" : RENAMED],
    ] as const) {
      const unwritten = named.find(({ name }) => !written.includes(name + suffix));
      if (unwritten === undefined) continue;
      throw new TinkerError(
        `This model's chat template has no place for these ${kind}: it leaves out ${unwritten.name}.`,
      );
    }
    return text;
  }

  #apply(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    if (stepsTaken() > this.#lastProbeStep)
      throw new TinkerError(
        `This model's chat template takes more than ${MAX_PROBE_STEPS} steps to write a few short conversations.`,
      );
    const given = { variables: this.#variables, now: this.#now, ...options };
    return this.#tokenizer.applyChatTemplate(messages, { tokenize: false, ...given });
  }

  /** Whether the template takes the text of a message only as a list of parts. */
  #findParts(): boolean {
    const { question, answer } = PROBE;
    const messages = [question, answer].map((message) => chatMessage(message, undefined, undefined, true));
    const writes = (content: readonly ChatMessage[]) =>
      attempt(() => this.#apply(content))?.includes(answer.content) === true;
    return !writes([question, answer]) && writes(messages);
  }

  #findOpening(): string {
    const { question, answer } = PROBE;
    const prompt = this.write([question], true);
    const [one, other] = ["0 probe 0", "1 probe 1"].map((content) =>
      this.write([question, { ...answer, content }], false),
    ) as [string, string];
    const before = Math.min(sharedLength(prompt, one), sharedLength(one, other));
    // A template that begins otherwise already before the question opens nothing.
    return prompt.slice(0, before).includes(question.content) ? prompt.slice(before) : "";
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
    const { question, answer, calling, result } = PROBE;
    const [, behind] = this.#aroundAnswer();
    const next = { ...question, content: "Next probe" };
    const between = this.#between([question, answer, next], answer.content, next.content);
    const turnEnd = this.#specialTokens(behind.slice(0, sharedLength(behind, between))).at(-1);
    const [own] = this.#specialTokens(behind);
    const [nextSign] = this.#specialTokens(between);
    const stop = turnEnd ?? own ?? nextSign;
    if (stop === undefined) {
      throw new TinkerError(
        "This model's chat template ends its turns nowhere: it writes no special token behind an answer, so nothing " +
          "would tell a model to stop.",
      );
    }
    const stops = new Map([stop]);
    if (turnEnd === undefined && own === undefined) {
      const [resultSign = stop] = this.takesCalls
        ? this.#specialTokens(
            this.#between([question, calling, result], "probe_key", result.content).replace(/^[^\w<[]*1/, ""),
          )
        : [];
      this.#nextSigns = { answer: stop[1], call: resultSign[1] };
      return stops.set(...resultSign);
    }
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
    const prompt = this.write([PROBE.question], true);
    const end = behind.indexOf(stop);
    return [
      before.startsWith(prompt) ? before.slice(prompt.length) : "",
      end === -1 ? behind : behind.slice(0, end),
    ];
  }

  /** Added tokens in what the template writes; many vocabularies do not call all of them special. */
  #findOwnSigns(): ReadonlySet<number> {
    const { question, answer, thoughtful, calling, result } = PROBE;
    const declared = { role: TOOL_DECLARE, content: JSON.stringify([PROBE_TOOL]) };
    const probes: readonly (readonly Message[])[] = [
      [question, answer, question],
      [{ ...question, role: "system" }, question],
      [question, thoughtful],
      [question, calling, result, answer],
      [declared, question],
    ];
    const written = probes.flatMap((messages) =>
      [true, false].map((asks) => attempt(() => this.write(messages, asks)) ?? ""),
    );
    const encode = (text: string, plainText: boolean) =>
      this.#tokenizer.encode(text, { addSpecialTokens: false, splitSpecialTokens: plainText, plainText });
    const signs = [...new Set(written.flatMap((text) => encode(text, false)))].filter((token) => {
      const text = this.#tokenizer.decode([token]);
      return text.trim() !== "" && !encode(text, true).includes(token);
    });
    return new Set(signs);
  }

  /** Text that the template writes between two texts of a conversation; empty if it refuses the conversation. */
  #between(messages: readonly Message[], first: string, second: string): string {
    const text = attempt(() => this.write(messages, false)) ?? "";
    const end = text.lastIndexOf(second);
    const start = text.lastIndexOf(first, end);
    return start === -1 || end === -1 ? "" : text.slice(start + first.length, end);
  }

  #aroundAnswer(): readonly [before: string, behind: string] {
    const { question, answer } = PROBE;
    const text = this.write([question, answer], false);
    const at = text.lastIndexOf(answer.content);
    if (at === -1) throw new TinkerError("This model's chat template does not write the text of an answer.");
    return [text.slice(0, at), text.slice(at + answer.content.length)];
  }

  /** The special tokens in a text, with their texts. */
  #specialTokens(text: string): [token: number, text: string][] {
    const tokens = this.#tokenizer.encode(text, { addSpecialTokens: false });
    return tokens.flatMap((token): [number, string][] => {
      const own = this.#tokenizer.decode([token]);
      const split = this.#tokenizer.encode(own, { addSpecialTokens: false, splitSpecialTokens: true });
      return split.length === 1 && split[0] === token ? [] : [[token, own]];
    });
  }
}

/** The result, or undefined if the template refuses the messages. */
function attempt<T>(write: () => T): T | undefined {
  try {
    return write();
  } catch (error) {
    if (error instanceof TinkerError) return undefined;
    throw error;
  }
}

const RENAMED = "_renamed";

function renameCalls(message: Message): Message {
  const { toolCalls } = message;
  if (toolCalls === undefined) return message;
  return { ...message, toolCalls: toolCalls.map((call) => ({ ...call, name: call.name + RENAMED })) };
}

function readDeclaration(message: Message): readonly ToolDeclaration[] {
  return JSON.parse(textOf(message)) as readonly ToolDeclaration[];
}

function chatMessage(
  message: Message,
  thoughts: ThoughtField | undefined,
  calls: CallForm | undefined,
  hasParts: boolean,
): ChatMessage {
  const { role, toolCalls, toolCallId, name } = message;
  checkOrder(message);
  const [text, thinking] = [textOf(message), thinkingOf(message)];
  const content =
    (thoughts === "content" && thinking !== "" ? `<think>\n${thinking}\n</think>\n\n` : "") + text;
  return {
    role,
    content:
      content === "" && toolCalls !== undefined && calls !== undefined
        ? calls.noText
        : hasParts
          ? [{ type: "text", text: content }]
          : content,
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

/** Templates expect thoughts first, then text. */
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

/** The arguments as a template sees them: numbers as they were written, keys in their order. */
function exactObject(name: string, given: string): unknown {
  try {
    return readPythonJson(given);
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    throw new TinkerError(`The arguments of the call to ${name} must be JSON: ${error.message}, in ${given}`);
  }
}

/** Length of the common beginning of two texts. */
export function sharedLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return length;
}
