import { TinkerError } from "../errors.js";
import type { ContentPart, Message, ToolCall } from "./messages.js";
import { printPythonJson, readPythonJson } from "./python-json.js";
import type { RendererTokenizer } from "./renderer.js";

/** While a template writes the conversation, a private sign replaces each control token that was typed in a message. */
const FIRST_SIGN = 0xf0000;
const ANY_SIGN = /([\u{F0000}-\u{FFFFD}])/u;
/** The private sign as a template writes it if it escapes other scripts. */
const ESCAPED_SIGN = /\\udb[89ab][0-9a-f]\\ud[c-f]/i;
/** Characters that control tokens have somewhere, and most texts have not. */
const UNUSUAL = /[^\s\w.,;:!?'"()-]/u;

/** Keeps control tokens that are typed in messages apart from those that a template writes. */
export class TypedSigns {
  readonly #tokenizer: RendererTokenizer;
  readonly #signs = new Map<string, string>();
  readonly #texts: string[] = [];
  readonly #controls = new Map<number, boolean>();
  readonly #isOwnSign: (token: number) => boolean;
  readonly #isThoughtTag: (text: string) => boolean;

  /**
   * Control tokens are those that the tokenizer calls special, and others that the template itself writes. Tags of thoughts
   * in an answer's text are the template's to read.
   */
  constructor(
    tokenizer: RendererTokenizer,
    isOwnSign: (token: number) => boolean,
    isThoughtTag: (text: string) => boolean,
  ) {
    this.#tokenizer = tokenizer;
    this.#isOwnSign = isOwnSign;
    this.#isThoughtTag = isThoughtTag;
  }

  hide(messages: readonly Message[]): readonly Message[] {
    return messages.map((message) => {
      const isAnswer = message.role === "assistant";
      return mapTexts(message, (text) => this.#hideIn(text, isAnswer));
    });
  }

  /** The tokens of a template's text; private signs become plain text. */
  encode(text: string): readonly number[] {
    if (this.#texts.length > 0 && ESCAPED_SIGN.test(text)) {
      throw new TinkerError(
        "This model's chat template writes texts with escapes, in which a control token that was typed in a message cannot " +
          "be kept apart from its own: take it out of the message.",
      );
    }
    // A pattern in brackets keeps what it splits at: every second piece is a sign.
    return text.split(ANY_SIGN).flatMap((piece, index) => {
      if (index % 2 === 1) return this.#plain(this.#texts[piece.codePointAt(0)! - FIRST_SIGN]!);
      return piece === "" ? [] : [...this.#tokenizer.encode(piece, { addSpecialTokens: false })];
    });
  }

  #hideIn(text: string, isAnswer: boolean): string {
    if (!UNUSUAL.test(text)) return text;
    const typed = new Set(this.#tokenizer.encode(text, { addSpecialTokens: false }));
    let hidden = text.replace(new RegExp(ANY_SIGN, "gu"), (sign) => this.#signOf(sign));
    for (const token of typed) {
      if (!this.#isControl(token)) continue;
      const written = this.#tokenizer.decode([token]);
      if (isAnswer && this.#isThoughtTag(written)) continue;
      hidden = hidden.replaceAll(written, this.#signOf(written));
    }
    return hidden;
  }

  #isControl(token: number): boolean {
    let isControl = this.#controls.get(token);
    if (isControl === undefined) {
      const text = this.#tokenizer.decode([token]);
      const [only, ...rest] = this.#tokenizer.encode(text, { addSpecialTokens: false });
      // Part of a character, or a word without its space, is not a token of its own either, and not a control token.
      const isAlone = only === token && rest.length === 0;
      isControl = isAlone && (this.#isOwnSign(token) || !this.#split(text).includes(token));
      this.#controls.set(token, isControl);
    }
    return isControl;
  }

  #split(text: string): readonly number[] {
    return this.#tokenizer.encode(text, { addSpecialTokens: false, splitSpecialTokens: true });
  }

  #plain(text: string): readonly number[] {
    return this.#tokenizer.encode(text, {
      addSpecialTokens: false,
      splitSpecialTokens: true,
      plainText: true,
    });
  }

  #signOf(text: string): string {
    let sign = this.#signs.get(text);
    if (sign === undefined) {
      sign = String.fromCodePoint(FIRST_SIGN + this.#texts.length);
      this.#signs.set(text, sign);
      this.#texts.push(text);
    }
    return sign;
  }
}

function mapTexts(message: Message, map: (text: string) => string): Message {
  const { content, toolCalls, toolCallId, name } = message;
  return {
    ...message,
    ...(toolCallId !== undefined && { toolCallId: map(toolCallId) }),
    ...(name !== undefined && { name: map(name) }),
    content: typeof content === "string" ? map(content) : content.map((part) => mapPart(part, map)),
    ...(toolCalls !== undefined && { toolCalls: toolCalls.map((call) => mapCall(call, map)) }),
  };
}

function mapPart(part: ContentPart, map: (text: string) => string): ContentPart {
  if (part.type === "text") return { ...part, text: map(part.text) };
  return part.type === "thinking" ? { ...part, thinking: map(part.thinking) } : part;
}

function mapCall(call: ToolCall, map: (text: string) => string): ToolCall {
  const { id, name, arguments: given } = call;
  return {
    ...call,
    ...(id !== undefined && { id: map(id) }),
    name: map(name),
    arguments: map(withoutEscapes(given)),
  };
}

/** A control token may be written with escapes, which a template that prints arguments itself takes away. */
function withoutEscapes(json: string): string {
  if (!json.includes("\\u")) return json;
  try {
    return printPythonJson(readPythonJson(json), { ensureAscii: false });
  } catch (error) {
    if (error instanceof TinkerError) return json;
    throw error;
  }
}
