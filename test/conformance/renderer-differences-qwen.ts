/** Where our renderers of Qwen's and Nemotron's models differ from the Python cookbook's on purpose. */
import { isDeepStrictEqual } from "node:util";
import type { ContentPart, Message } from "../../src/renderers/index.js";
import { hasThinking, textOf } from "../../src/renderers/messages.js";
import { strip } from "../../src/renderers/python-text.js";
import type { AllowedDifference, Difference } from "./renderer-differences.js";
import { comparable, type Outcome } from "./renderer-operations.js";

const OPENS_THOUGHTS = /^(qwen3_[58]|nemotron3)(?!.*disable)/;
const PREFILLS = /^(qwen3_[58]|nemotron3)/;

export const QWEN_DIFFERENCES: readonly AllowedDifference[] = [
  {
    name: "results in a row share a turn",
    reason:
      "Qwen3's and Qwen3-VL's templates write them into one turn of the user; Python gives each its own",
    renderers: /^qwen3(_disable_thinking|_instruct|_vl.*)?$/,
    explains: (difference) =>
      messagesOf(difference).some(
        ({ role }, index, all) => role === "tool" && all[index + 1]?.role === "tool",
      ),
  },
  {
    name: "a call follows thoughts directly",
    reason: "Qwen3's template puts a newline behind text only; Python counts the block of thoughts as text",
    renderers: /^qwen3(_disable_thinking)?$/,
    explains: (difference) =>
      answersOf(difference).some(
        ({ content, toolCalls }) =>
          toolCalls !== undefined &&
          (typeof content === "string"
            ? /(?:^|<\/think>)\n*$/.test(content)
            : textParts(content).every((text) => /^\n*$/.test(text))),
      ),
  },
  {
    name: "thoughts stand in their block without a user, too",
    reason: "Python writes <think>thoughts</think> where no message of the user stands before them",
    renderers: /^qwen3(_disable_thinking)?$/,
    explains: (difference) =>
      messagesOf(difference).some(
        ({ content }, index, all) =>
          hasThinking(content) && all.slice(0, index).every(({ role }) => role !== "user"),
      ),
  },
  {
    name: "a call needs no newline before it",
    reason: "Qwen3-VL's template puts one behind content only; Python always does",
    renderers: /^qwen3_vl/,
    explains: (difference) =>
      messagesOf(difference).some(
        ({ role, content, toolCalls }) =>
          toolCalls !== undefined &&
          (typeof content === "string"
            ? content === ""
            : role === "assistant" && textParts(content).every((text) => text === "")),
      ),
  },
  {
    name: "thoughts are trimmed",
    reason:
      "Qwen3.5's and Qwen3.8's templates trim them, as reading an answer does; Python writes them as given",
    renderers: /^qwen3_[58]/,
    explains: (difference) =>
      messagesOf(difference).some(({ content }) => thoughts(content).some((text) => strip(text) !== text)),
  },
  {
    name: "an example begins with its prompt",
    reason: "where a block of thoughts begins with a newline, Python's tokens join it to the prompt's last",
    renderers: PREFILLS,
    explains: (difference) =>
      answersOf(difference).some(({ content }) => {
        const parts = typeof content === "string" ? [strip(content)] : content.map(written);
        return /^\s*<think>\n\s*[\n\r]/.test(parts.join(""));
      }),
  },
  {
    name: "an answer without thoughts is learnt behind the opened block",
    reason:
      "Python writes <think></think>, which can never follow a prompt that ends with <think> and a newline",
    renderers: /^nemotron3(?!.*disable)/,
    explains: (difference) =>
      difference.operation.operation !== "prompt" &&
      answersOf(difference).some(({ content }) => !hasThinking(content)),
  },
  {
    name: "kept thoughts do not make prompts grow",
    reason:
      "history writes an answer without thoughts otherwise than it is sampled, so each answer is an example",
    renderers: /^nemotron3.*preserve/,
    explains: ({ operation, kind }) =>
      operation.operation === "properties" ||
      (operation.operation === "examples" &&
        (kind === "only we refuse" ||
          operation.trainOn !== "last_assistant_message" ||
          operation.messages.at(-1)?.role !== "assistant")),
  },
  {
    name: "flags are those of the messages that are given",
    reason: "Python looks for them when its format has added a system message or dropped an empty one",
    renderers: /^(nemotron3|qwen3_8)/,
    explains: ({ operation, kind }) => {
      if (!("trainOn" in operation) || operation.tools !== undefined) return false;
      const [first] = operation.messages;
      return kind === "only Python refuses"
        ? operation.trainOn === "customized" && first?.role !== "system"
        : kind === "only we refuse" && first?.role === "system" && strip(textOf(first)) === "";
    },
  },
  {
    name: "a call stands on a line of its own, also behind thoughts that were dropped",
    reason:
      "Nemotron's template ends <think></think> with a newline; Python takes the dropped block's for it",
    renderers: /^nemotron3(?!.*(preserve|ultra))/,
    explains: (difference) =>
      messagesOf(difference).some(
        ({ content, toolCalls }, index, all) =>
          toolCalls !== undefined &&
          typeof content !== "string" &&
          hasThinking(content) &&
          textParts(content).every((text) => text === "") &&
          all.slice(index).some(({ role }) => role === "user"),
      ),
  },
  {
    name: "effort is said behind content in parts too",
    reason: "Python asserts that the user's last message is one text",
    renderers: /^nemotron3_low/,
    explains: (difference) =>
      difference.kind === "only Python refuses" &&
      messagesOf(difference).some(({ role, content }) => role === "user" && typeof content !== "string"),
  },
  {
    name: "all thoughts lose the white space around them",
    reason: "Python trims them up to the first text behind a thought, and keeps empty ones",
    renderers: PREFILLS,
    explains: ({ operation, ours, theirs }) =>
      isReading(operation) && isDeepStrictEqual(trimmed(comparable(ours.ok)), trimmed(comparable(theirs.ok))),
  },
  {
    name: "the newlines around a call are no text",
    reason:
      "Python reads them as text, so that a message that is read and written again grows by them each time, and prompts are no longer those that were sampled from",
    renderers: /^(qwen3|nemotron3)/,
    explains: (difference) => {
      const { ok } = difference.theirs;
      if (difference.kind !== "results differ" || !("tokens" in difference.operation)) return false;
      const unframe = (read: unknown) =>
        Array.isArray(read) ? read.map(withoutNewlines) : withoutNewlines(read as Read);
      const unframed = unframe(ok);
      if (isDeepStrictEqual(unframed, ok)) return false;
      // Ours keeps the newlines that the answer's own text ends with.
      if (isDeepStrictEqual(comparable(unframe(difference.ours.ok)), comparable(unframed))) return true;
      // The rest may differ for one of the other reasons.
      const rest = { ...difference, theirs: { ok: unframed } };
      return QWEN_DIFFERENCES.some(
        ({ renderers, explains }) => renderers.test(difference.renderer) && explains(rest),
      );
    },
  },
  {
    name: "calls stay in their order",
    reason: "Python puts those in JSON before those in tags",
    renderers: PREFILLS,
    explains: ({ operation, ours, theirs }) =>
      isReading(operation) && isDeepStrictEqual(withoutOrder(ours.ok), withoutOrder(theirs.ok)),
  },
  {
    name: "an answer may open its thoughts itself",
    reason: "Python takes the tag for a thought, unless one newline token follows it",
    renderers: PREFILLS,
    explains: ({ operation, theirs }) =>
      isReading(operation) &&
      /"thinking":"(\\n)?<think>|"(content|text)":"<think>\\n<think>/.test(
        JSON.stringify(comparable(theirs.ok)),
      ),
  },
  {
    name: "thoughts are streamed as thoughts before they end",
    reason: "Python looks for </think> in the whole answer first, and gives one that was cut off as text",
    renderers: OPENS_THOUGHTS,
    explains: (difference) =>
      differsInDeltasOnly(difference) &&
      deltasOf(difference.ours).every(({ type, contentIndex }) => type === "thinking" && contentIndex === 1),
  },
  {
    name: "what follows the stop token is not read",
    reason: "Python takes the beginning of an answer for thoughts where </think> comes after its end",
    renderers: PREFILLS,
    explains: (difference) =>
      difference.operation.operation === "stream" && /<\|im_end\|>.*<\/think>/s.test(answerText(difference)),
  },
  {
    name: "a block that the prompt closed is not opened again",
    reason: "Python reads all that stands before </think> as a thought, though the prompt opened none",
    renderers: /^(qwen3_[58]|nemotron3).*disable/,
    explains: (difference) => /^(?!<think>).*<\/think>/s.test(answerText(difference)),
  },
];

function messagesOf({ operation }: Difference): readonly Message[] {
  return "messages" in operation ? operation.messages : [];
}

/** The messages that are written as the turn being produced. */
function answersOf(difference: Difference): readonly Message[] {
  const messages = messagesOf(difference);
  const produced = difference.operation.operation === "examples" ? messages : messages.slice(-1);
  return produced.filter(({ role }) => role === "assistant");
}

function thoughts(content: Message["content"]): readonly string[] {
  return typeof content === "string"
    ? []
    : content.flatMap((part) => (part.type === "thinking" ? [part.thinking] : []));
}

function textParts(content: readonly ContentPart[]): readonly string[] {
  return content.flatMap((part) => (part.type === "text" ? [part.text] : []));
}

function written(part: ContentPart): string {
  if (part.type === "thinking") return `<think>\n${part.thinking}\n</think>`;
  return part.type === "text" ? part.text : "";
}

/** The answer that was read. */
function answerText({ operation, tokenizer }: Difference): string {
  return "tokens" in operation ? tokenizer.decode(operation.tokens) : "";
}

const isReading = ({ operation }: Difference["operation"]) => operation === "parse" || operation === "stream";

interface Delta {
  readonly type: string;
  readonly contentIndex?: number;
  readonly message?: unknown;
}

function deltasOf(outcome: Outcome): readonly Delta[] {
  return (comparable(outcome.ok) as readonly Delta[]).filter(
    ({ type }) => type === "text" || type === "thinking",
  );
}

function differsInDeltasOnly({ operation, kind, ours, theirs }: Difference): boolean {
  if (operation.operation !== "stream" || kind !== "results differ") return false;
  const last = ({ ok }: Outcome) => trimmed((comparable(ok) as readonly Delta[]).at(-1)?.message);
  return isDeepStrictEqual(last(ours), last(theirs));
}

/** A result whose thoughts have no white space around them, and of which none is empty. */
function trimmed(result: unknown): unknown {
  if (Array.isArray(result)) {
    return result.map(trimmed).filter((part) => (part as { thinking?: string } | null)?.thinking !== "");
  }
  if (typeof result !== "object" || result === null) return result;
  return Object.fromEntries(
    Object.entries(result).map(([key, value]) => [
      key,
      key === "thinking" && typeof value === "string" ? strip(value) : trimmed(value),
    ]),
  );
}

/** A result whose calls are sorted. */
function withoutOrder(result: unknown): unknown {
  return JSON.parse(JSON.stringify(trimmed(comparable(result)) ?? null), (key, value) =>
    key === "tool_calls" ? value.map((call: object) => JSON.stringify(call)).sort() : value,
  );
}

type Read = { readonly message?: { readonly content: string | readonly ContentPart[] } };

/** A parsed answer, or a delta, with a message whose texts end without newlines. */
function withoutNewlines(read: Read): Read {
  if (read.message === undefined || typeof read.message.content === "string") return read;
  const content = read.message.content.flatMap((part): ContentPart[] => {
    if (part.type !== "text") return [part];
    const text = part.text.replace(/\n+$/, "");
    return text === "" ? [] : [{ type: "text", text }];
  });
  return { ...read, message: { ...read.message, content } };
}
