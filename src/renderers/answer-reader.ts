import { HeldText } from "../tokenizers/held-text.js";
import type { TextTokenizer } from "../tokenizers/index.js";
import { randomUuid } from "../transport/ids.js";
import type { Message, ToolCall } from "./messages.js";
import type { MessageDelta, StreamParser } from "./stream-parser.js";

/** A piece of an answer, in the order in which it was written. */
export type AnswerPiece =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "reasoning"; readonly text: string }
  | { readonly type: "calls"; readonly calls: readonly Required<ToolCall>[] };

/** Turns the tokens of an answer into text and thoughts. */
export interface AnswerParser extends Pick<StreamParser, "push" | "end"> {
  /** Whether all of the answer is JSON, in which there are no calls. */
  readonly isJson?: boolean;
}

/** How an answer is read. */
export interface AnswerFormat {
  readonly parser: AnswerParser;
  /** Whether calls are looked for: only where functions are declared. */
  readonly readsCalls: boolean;
  /** Sign that begins a call within the text. */
  readonly callSign: string | undefined;
  /** Maximum number of calls; later ones are left out. Default: all are read. */
  readonly maxCalls?: number | undefined;
  /** Beginning of the answer, if it is part of the prompt. */
  readonly prefill: readonly number[];
  /** Tokens that end an answer and that the format does not know. */
  readonly ignored: readonly number[];
}

/**
 * Reads an answer from its tokens as they come. Whole answers are read in the same way, so that both give the same. The
 * newlines between thoughts, text and calls belong to the format and are left out.
 */
export class AnswerReader {
  readonly #format: AnswerFormat;
  readonly #text: HeldText;
  readonly #thoughts = new Framed();
  readonly #shown = new Framed();
  #tokens = 0;
  #reasoningTokens = 0;
  #first: AnswerPiece[];

  constructor(format: AnswerFormat) {
    this.#format = format;
    this.#text = new HeldText(format.readsCalls && format.callSign !== undefined ? [format.callSign] : []);
    this.#first = this.#read(format.parser.push(format.prefill));
  }

  /** How many tokens the thoughts took. */
  get reasoningTokens(): number {
    return this.#reasoningTokens;
  }

  push(token: number): AnswerPiece[] {
    this.#tokens += 1;
    const { parser, ignored } = this.#format;
    const pieces = [...this.#first, ...(ignored.includes(token) ? [] : this.#read(parser.push(token)))];
    this.#first = [];
    return pieces;
  }

  /** After the last token: what was held back, and the calls. */
  end(): AnswerPiece[] {
    const deltas = this.#format.parser.end();
    const pieces = [...this.#first, ...this.#read(deltas)];
    const last = deltas.at(-1);
    const calls = last?.type === "message" ? this.#calls(last.message) : [];
    if (calls.length > 0) return [...pieces, { type: "calls", calls }];
    const rest = this.#shown.push(this.#text.rest, false) + this.#shown.end();
    return rest === "" ? pieces : [...pieces, { type: "text", text: rest }];
  }

  #read(deltas: readonly MessageDelta[]): AnswerPiece[] {
    return deltas.flatMap((delta): AnswerPiece[] => {
      switch (delta.type) {
        case "thinking": {
          const text = this.#thoughts.push(delta.thinking, true);
          if (text !== "") this.#reasoningTokens = this.#tokens;
          return text === "" ? [] : [{ type: "reasoning", text }];
        }
        case "text": {
          const fresh = this.#format.parser.isJson ? delta.text : this.#text.push(delta.text);
          const text = this.#shown.push(fresh, delta.contentIndex > 0);
          return text === "" ? [] : [{ type: "text", text }];
        }
        case "header":
        case "message":
          return [];
        default:
          return delta satisfies never;
      }
    });
  }

  #calls({ toolCalls = [] }: Message): Required<ToolCall>[] {
    if (!this.#format.readsCalls) return [];
    const taken = new Set<string | undefined>();
    return toolCalls.slice(0, this.#format.maxCalls).map(({ id, name, arguments: given }) => {
      const isFree = id !== undefined && id !== "" && !taken.has(id);
      taken.add(id);
      return { id: isFree ? id : `call_${randomUuid().replaceAll("-", "")}`, name, arguments: given };
    });
  }
}

/** Text without the newlines around it. */
class Framed {
  #hasBegun = false;
  #newlines = "";

  push(text: string, isFramed: boolean): string {
    const fresh = this.#hasBegun || !isFramed ? text : text.replace(/^\n+/, "");
    if (fresh === "") return "";
    this.#hasBegun = true;
    const whole = this.#newlines + fresh;
    const end = whole.search(/\n*$/);
    this.#newlines = whole.slice(end);
    return whole.slice(0, end);
  }

  /** The newlines after the text, if they turn out to be part of it. */
  end(): string {
    const held = this.#newlines;
    this.#newlines = "";
    return held;
  }
}

const JSON_BEGINNING = /^[{["\-0-9tfn]/;

/** Reads an answer that is JSON or a call, which differ in their first character. */
export class JsonOrCallParser implements AnswerParser {
  readonly #tokenizer: TextTokenizer;
  readonly #json: AnswerParser;
  readonly #call: AnswerParser;
  #isJson: boolean | undefined;

  constructor(tokenizer: TextTokenizer, json: AnswerParser, call: AnswerParser) {
    this.#tokenizer = tokenizer;
    this.#json = json;
    this.#call = call;
  }

  get isJson(): boolean {
    return this.#isJson === true;
  }

  push(tokens: number | ArrayLike<number>): readonly MessageDelta[] {
    const all = typeof tokens === "number" ? [tokens] : Array.from(tokens);
    if (all.length === 0) return [];
    this.#isJson ??= JSON_BEGINNING.test(this.#tokenizer.decode(all));
    return this.#parser.push(all);
  }

  end(): readonly MessageDelta[] {
    return this.#parser.end();
  }

  get #parser(): AnswerParser {
    return this.#isJson ? this.#json : this.#call;
  }
}
