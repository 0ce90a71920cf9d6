import { createHash } from "node:crypto";
import type { TextTokenizer } from "../../tokenizers/index.js";
import type { ShownMessage } from "../api.js";
import { fieldsIn, numbersIn, type SampleLine } from "./sample-lines.js";
import { shownMessages } from "./shown-message.js";

/** Tokens whose text is read where a line has no messages. */
const MAX_DECODED = 2000;
const MAX_WORDS = 140;
const CONTROL_TOKEN = /<\|[^|>]{1,40}\|>/g;

/** Question and answer of a sample as plain text. */
export interface TextOfSample {
  readonly prompt: string;
  readonly answer: string;
  /** Identifies a prompt by its text. */
  readonly promptKey: string;
}

/** The texts of a line: from its messages or, where it has none, from its tokens. */
export function textOfSample(line: SampleLine, tokenizer: TextTokenizer | undefined): TextOfSample {
  const messages = shownMessages(line["messages"]);
  if (messages !== undefined) {
    const first = messages.findIndex(({ role }) => role === "assistant");
    const asked = first === -1 ? messages : messages.slice(0, first);
    const prompt = textOf(asked.filter(({ role }) => role !== "system"));
    const answers = first === -1 ? [] : messages.slice(first).filter(({ role }) => role === "assistant");
    return { prompt, answer: textOf(answers), promptKey: keyOf(textOf(asked)) };
  }
  const { read, said } = tokensOf(line);
  return {
    prompt: decoded(read, tokenizer),
    answer: decoded(said, tokenizer),
    promptKey: keyOf(read.join()),
  };
}

/** The first words, on one line. */
export function firstWords(text: string): string {
  const line = text
    .slice(0, 4 * MAX_WORDS)
    .replaceAll(/\s+/g, " ")
    .trim();
  return line.length > MAX_WORDS ? `${line.slice(0, MAX_WORDS - 1)}…` : line;
}

function textOf(messages: readonly ShownMessage[]): string {
  return messages.flatMap(({ parts }) => parts.map(({ text }) => text)).join("\n");
}

/** An episode's first prompt and its answers; a training example up to and from its first trained token. */
function tokensOf(line: SampleLine): { readonly read: readonly number[]; readonly said: readonly number[] } {
  const { tokens, weights } = line;
  if (Array.isArray(weights)) {
    const all = numbersIn(tokens);
    const first = weights.findIndex((weight) => typeof weight === "number" && weight > 0);
    const start = first === -1 ? all.length : first;
    return { read: all.slice(0, start), said: all.slice(start) };
  }
  const steps = fieldsIn(line["steps"]);
  return {
    read: numbersIn(steps[0]?.["ob_tokens"]),
    said: steps.flatMap((step) => [...numbersIn(step["tokens"])]),
  };
}

function decoded(tokens: readonly number[], tokenizer: TextTokenizer | undefined): string {
  if (tokenizer === undefined || tokens.length === 0) return "";
  try {
    return tokenizer.decode(tokens.slice(0, MAX_DECODED)).replaceAll(CONTROL_TOKEN, " ").trim();
  } catch {
    return "";
  }
}

function keyOf(text: string): string {
  return createHash("sha256").update(text).digest("base64url").slice(0, 16);
}
