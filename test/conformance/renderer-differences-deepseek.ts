/** Where our renderers of DeepSeek's models and GLM differ from the Python cookbook's on purpose. */
import { isDeepStrictEqual } from "node:util";
import type { Message } from "../../src/renderers/index.js";
import { hasThinking } from "../../src/renderers/messages.js";
import { SPACE } from "../../src/renderers/python-text.js";
import { type AllowedDifference, type Difference, examplesOf } from "./renderer-differences.js";
import { comparable, disagreement, type Outcome } from "./renderer-operations.js";

export const DEEPSEEK_DIFFERENCES: readonly AllowedDifference[] = [
  {
    name: "thoughts that the prompt opened",
    reason:
      "Python streams thoughts as text where they are never closed, since it waits for the whole answer to know; ours knows that the prompt opened them",
    renderers: /^(deepseekv3_thinking|deepseekv4_1(?!_disable).*|glm5_3.*)$/,
    explains: ({ operation, kind, ours, theirs }) => {
      if (operation.operation !== "stream" || kind !== "results differ") return false;
      const [own, python] = [ours.ok as Delta[], theirs.ok as Delta[]];
      const text = python.map((delta) => delta.text ?? delta.thinking ?? "").join("");
      return (
        own.length === 3 &&
        own[1]!.thinking?.replace("<think>", "") === text &&
        own[1]!.contentIndex === 1 &&
        disagreement({ ok: own.at(-1)!.message }, { ok: python.at(-1)!.message }) === undefined
      );
    },
  },
  {
    name: "DeepSeek V3 answers that say nothing end too",
    reason:
      "Python leaves out the end of sentence (and, where the renderer thinks, the empty thoughts) of an answer without text, also where it calls tools: a model would never learn to stop behind a call",
    renderers: /^deepseekv3/,
    explains: (difference) =>
      assistants(difference).some(({ message }) => saysNothing(message)) && differsInThoughtsOnly(difference),
  },
  {
    name: "DeepSeek V3 history has no thoughts",
    reason:
      "Python keeps those of answers that call tools and those written out in the text, behind a tag that says there are none: </think><think>",
    renderers: /^deepseekv3_thinking$/,
    explains: (difference) =>
      assistants(difference).some(
        ({ message, isLast }) =>
          !isLast &&
          hasThinking(message.content) &&
          (message.toolCalls !== undefined || typeof message.content === "string"),
      ) && differsInThoughtsOnly(difference),
  },
  {
    name: "DeepSeek V3 without thinking writes no thoughts",
    reason:
      "Python writes them behind a tool's result, while they are the last message, and takes them away one turn later, which breaks the extension property that it claims",
    renderers: /^deepseekv3(_disable_thinking)?$/,
    explains: (difference) =>
      assistants(difference).some(
        ({ message, previous }) => previous?.role === "tool" && hasThinking(message.content),
      ) && differsInThoughtsOnly(difference),
  },
  {
    name: "only an assistant is asked for thoughts",
    reason:
      "Python writes <think> also behind the sign of the user, where it is the user's turn that is wanted",
    renderers: /^deepseekv3_thinking$/,
    explains: (difference) =>
      difference.operation.operation === "prompt" &&
      difference.operation.role !== undefined &&
      differsInThoughtsOnly(difference),
  },
  {
    name: "DeepSeek V3 calls of any name are read",
    reason:
      "Python drops calls of functions whose name is not letters and digits alone (a.b, f-1), without a word",
    renderers: /^deepseekv3/,
    explains: (difference) =>
      /<｜tool▁call▁begin｜>(?![\p{L}\p{N}_]+<｜tool▁sep｜>)/u.test(answerOf(difference)[0]) &&
      hasMoreCalls(difference),
  },
  {
    name: "DeepSeek V3 answers keep their white space beside calls",
    reason: "Python cuts it off beside calls; ours reads the text as it was sampled",
    renderers: /^deepseekv3/,
    explains: ({ kind, ours, theirs }) =>
      kind === "results differ" &&
      messageOf(ours.ok)?.content !== messageOf(theirs.ok)?.content &&
      isDeepStrictEqual(strippedMessage(ours.ok), strippedMessage(theirs.ok)),
  },
  {
    name: "GLM tool calls that are never closed",
    reason: "Python takes them for text, and for failures in every other family",
    renderers: /^glm5_3/,
    explains: (difference) => {
      const [answer] = answerOf(difference);
      return (
        answer.split("<tool_call>").length > answer.split("</tool_call>").length && hasMoreCalls(difference)
      );
    },
  },
  {
    name: "GLM tool calls in their order",
    reason: "Python puts calls that are JSON before those in the format's own tags",
    renderers: /^glm5_3/,
    explains: (difference) =>
      difference.kind === "results differ" &&
      answerOf(difference)[0].includes("<arg_key>") &&
      JSON.stringify(parsedCalls(difference.theirs).toSorted()) ===
        JSON.stringify(parsedCalls(difference.ours).toSorted()),
  },
];

type Delta = {
  readonly text?: string;
  readonly thinking?: string;
  readonly contentIndex?: number;
  readonly message?: object;
};

interface Answer {
  readonly message: Message;
  readonly previous: Message | undefined;
  readonly isLast: boolean;
}

/** The assistant's messages that were rendered. */
function assistants({ operation }: Difference): readonly Answer[] {
  if (!("messages" in operation)) return [];
  const { messages } = operation;
  return messages.flatMap((message, index) =>
    message.role === "assistant"
      ? [{ message, previous: messages[index - 1], isLast: index === messages.length - 1 }]
      : [],
  );
}

function saysNothing({ content }: Message): boolean {
  return typeof content === "string"
    ? content.replace(/<think>.*?<\/think>/gs, "") === ""
    : content.every((part) => part.type === "thinking" || (part.type === "text" && part.text === ""));
}

/** Whether ours is theirs without thoughts, and with or without the tags around them and the ends of answers. */
function differsInThoughtsOnly({ kind, ours, theirs, tokenizer }: Difference): boolean {
  if (kind !== "results differ") return false;
  const signs = ["<think>", "</think>", "<｜end▁of▁sentence｜>"].flatMap((sign) =>
    tokenizer.encode(sign, { addSpecialTokens: false }),
  );
  const [own, python] = [ours, theirs].map(({ ok }) =>
    examplesOf(ok).map(({ tokens, weights }) =>
      tokens.flatMap((token, index) => (signs.includes(token) ? [] : [`${token} ${weights?.[index]}`])),
    ),
  );
  return own!.length === python!.length && own!.every((each, index) => isPartOf(each, python![index]!));
}

/** Whether all of the one occur in the other, in order. */
function isPartOf(part: readonly unknown[], whole: readonly unknown[]): boolean {
  let found = 0;
  for (const each of whole) if (found < part.length && part[found] === each) found++;
  return found === part.length;
}

const STOP_TOKEN = /<｜end▁of▁sentence｜>|<\|user\|>|<\|observation\|>|<\|endoftext\|>/;

/** The text of an answer that was parsed, and what stands behind its stop token. */
function answerOf({ operation, tokenizer }: Difference): readonly [answer: string, behind: string] {
  const text = "tokens" in operation ? tokenizer.decode(operation.tokens) : "";
  const [answer, ...behind] = text.split(STOP_TOKEN);
  return [answer!, behind.join("")];
}

/** Whether ours reads all calls that they read, and others. */
function hasMoreCalls({ kind, ours, theirs }: Difference): boolean {
  return kind === "results differ" && isPartOf(parsedCalls(theirs), parsedCalls(ours));
}

/** White space as Python has it. */
const WHITE_SPACE = new RegExp(SPACE, "g");

type ReadMessage = { readonly content?: unknown };

/** The message of a parsed or streamed answer. */
function messageOf(ok: unknown): ReadMessage | undefined {
  return ((Array.isArray(ok) ? ok.at(-1) : ok) as { message?: ReadMessage } | undefined)?.message;
}

/** That message without white space in its text. */
function strippedMessage(ok: unknown): unknown {
  const message = JSON.stringify(messageOf(comparable(ok)) ?? null);
  return JSON.parse(message, (key, value) => {
    if (Array.isArray(value)) return value.filter((part) => part?.text !== "");
    return ["content", "text"].includes(key) && typeof value === "string"
      ? value.replace(WHITE_SPACE, "")
      : value;
  });
}

/** The calls of a parsed or streamed answer, those that could not be read too. */
function parsedCalls({ ok }: Outcome): readonly string[] {
  const { message } = (Array.isArray(ok) ? ok.at(-1) : ok) as { message: Record<string, object[]> };
  const { tool_calls: calls = [], unparsed_tool_calls: unparsed = [] } = message;
  return [
    ...calls.map((call) => JSON.stringify(call)),
    ...unparsed.map((call) => JSON.stringify((call as { raw_text: string }).raw_text)),
  ];
}
