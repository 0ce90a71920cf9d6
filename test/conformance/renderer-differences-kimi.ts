/** Where our renderers of Kimi, GPT-OSS and Inkling differ from the Python cookbook's on purpose. */
import { isDeepStrictEqual } from "node:util";
import type { RendererTokenizer } from "../../src/renderers/index.js";
import { type AllowedDifference, type Difference, examplesOf } from "./renderer-differences.js";
import { comparable, merged } from "./renderer-operations.js";

export const KIMI_DIFFERENCES: readonly AllowedDifference[] = [
  {
    name: "no flag on what the format adds",
    reason:
      'Python wants `trainable` on the system message that the renderer itself adds, so that "customized" needs one of the user\'s',
    renderers: /^(kimi_.*|gpt_oss_.*_reasoning)$/,
    explains: ({ operation, kind, theirs }) =>
      "trainOn" in operation &&
      operation.trainOn === "customized" &&
      kind === "only Python refuses" &&
      theirs.error!.startsWith("AssertionError: When using CUSTOMIZED"),
  },
  {
    name: "Kimi calls without a number are reported",
    reason:
      "Python drops a call whose id does not end with a number without a trace, also those that its own renderer writes",
    renderers: /^kimi_/,
    explains: (difference) =>
      hasUnparsed(difference, CALL_WITHOUT_NUMBER) &&
      isEqualReading(difference, withoutUnparsed(CALL_WITHOUT_NUMBER)),
  },
  {
    name: "Kimi thoughts that the prompt opened",
    reason:
      "Python streams thoughts as text where they are never closed, since it waits for the whole answer to know, and even for what follows its stop token; ours knows that the prompt opened them",
    renderers: /^kimi_k2[56](?!_disable)/,
    explains: (difference) =>
      difference.operation.operation === "stream" &&
      !answerOf(difference).split("<|im_end|>")[0]!.includes("</think>") &&
      isEqualReading(difference, kimiWithoutTags, deltasWithoutTags),
  },
  {
    name: "Kimi thoughts that the prompt closed",
    reason:
      "Python takes a text for thoughts when a stray </think> follows it, though the prompt told the model not to think and closed the block",
    renderers: /^kimi_k2[56]_disable/,
    explains: (difference) =>
      answerOf(difference).includes("</think>") &&
      !answerOf(difference).startsWith("<think>") &&
      isEqualReading(difference, kimiWithoutTags, deltasWithoutTags),
  },
  {
    name: "GPT-OSS calls are no text",
    reason:
      "Python gives an answer of calls alone, or an empty one, its raw tokens as content, which the next prompt then writes as text",
    renderers: /^gpt_oss_/,
    explains: (difference) =>
      messageOf(difference.ours.ok)?.["content"] === "" && isEqualReading(difference, readHarmony),
  },
  {
    name: "GPT-OSS calls without arguments are reported where they stand",
    reason: "Python counts to=functions. anywhere, also in text, and reports the last block whatever it is",
    renderers: /^gpt_oss_/,
    explains: (difference) =>
      hasUnparsed(difference, /^unterminated tool block/) && isEqualReading(difference, readHarmony),
  },
  {
    name: "GPT-OSS results name their function",
    reason:
      "Python writes functions.unknown where a result has no name of its own, though the call before it has one, as the model's template knows",
    renderers: /^gpt_oss_/,
    explains: ({ kind, ours, theirs, tokenizer }) =>
      kind === "results differ" &&
      isDeepStrictEqual(
        ...([ours, theirs].map(({ ok }) =>
          learntText(ok, tokenizer, (text) => text.replaceAll(/<\|start\|>functions\.\S+ to=/g, "")),
        ) as [unknown, unknown]),
      ),
  },
  {
    name: "GPT-OSS answers end once",
    reason:
      "Python refuses two stop tokens of one kind, also behind calls in a row, and takes two of different kinds for one end; ours reads calls in a row, and anything else behind a stop token is malformed",
    renderers: /^gpt_oss_/,
    explains: (difference) =>
      /<\|(?:call|return)\|>./s.test(answerOf(difference)) &&
      (difference.kind === "only Python refuses"
        ? difference.theirs.error!.includes("expected at most 1")
        : JSON.stringify(difference.ours.ok)?.includes('"malformed"') === true),
  },
  {
    name: "Inkling learns a turn",
    reason: "Python knows no last_assistant_turn here, which is the default of every other format",
    renderers: /^tml_v0$/,
    explains: ({ operation, kind }) =>
      kind === "only Python refuses" && "trainOn" in operation && operation.trainOn === "last_assistant_turn",
  },
  {
    name: "Inkling's flags are as strict as everybody's",
    reason:
      "Python takes `trainable` in any mode here, and its absence for yes; in every other format it refuses both",
    renderers: /^tml_v0$/,
    explains: ({ operation, kind }) =>
      kind === "only we refuse" &&
      "trainOn" in operation &&
      operation.messages.some(
        ({ trainable }) => (trainable === undefined) === (operation.trainOn === "customized"),
      ),
  },
  {
    name: "Inkling's long integers stay integers",
    reason: "Python writes and reads those beyond 64 bits as floats, so that their last digits are lost",
    renderers: /^tml_v0$/,
    explains: ({ kind, ours, theirs, tokenizer }) =>
      kind === "results differ" &&
      isDeepStrictEqual(
        learntText(ours.ok, tokenizer),
        learntText(theirs.ok, tokenizer, (text) =>
          text.replaceAll(/1\.2345678901234568e\+?29/g, "123456789012345678901234567890"),
        ),
      ),
  },
  {
    name: "Inkling's broken calls are reported",
    reason:
      "Python takes the whole answer for malformed where one call cannot be read; other formats report the call",
    renderers: /^tml_v0$/,
    explains: (difference) =>
      hasUnparsed(difference, /./) && messageOf(difference.theirs.ok)?.["content"] === answerOf(difference),
  },
  {
    name: "Inkling's blocks stay where the next one breaks off",
    reason: "Python throws them away if the answer ends in the header of a block, not if it ends later in it",
    renderers: /^tml_v0$/,
    explains: (difference) =>
      /<\|end_message\|><\|message_model\|>[^<]*$/.test(answerOf(difference)) &&
      messageOf(difference.theirs.ok)?.["content"] === answerOf(difference) &&
      JSON.stringify(difference.ours.ok).includes('"malformed"'),
  },
  {
    name: "Inkling's answer is all of its blocks, whatever names they bear",
    reason: "Python keeps the last of them where blocks of one answer name different authors",
    renderers: /^tml_v0$/,
    explains: (difference) => {
      const names = [...answerOf(difference).matchAll(/(?:^|<\|message_model\|>)([^<]*)<\|content_/g)];
      const [ours = [], theirs = []] = [difference.ours, difference.theirs].map(
        ({ ok }) => messageOf(ok)?.["content"] as readonly unknown[] | undefined,
      );
      return (
        new Set(names.map(([, name]) => name)).size > 1 &&
        isDeepStrictEqual(ours.slice(ours.length - theirs.length), theirs)
      );
    },
  },
  {
    name: "Inkling alone speaks in its answers",
    reason:
      "Python reads on behind a broken block, after the end, and in blocks of others, and gives the last of them as the answer",
    renderers: /^tml_v0$/,
    explains: (difference) =>
      !INKLING_ANSWER.test(answerOf(difference)) &&
      (difference.kind === "only we refuse" || JSON.stringify(difference.ours.ok).includes('"malformed"')),
  },
];

/** An answer in form, whole or cut off. */
const INKLING_ANSWER = new RegExp(
  "^((<\\|message_model\\|>)?[^<]*<\\|content_(text|thinking|invoke_tool_json)\\|>((?!<\\|end_message\\|>|<\\|content_model_end).)*<\\|end_message\\|>)*" +
    "(<\\|content_model_end_sampling\\|>|(<\\|message_model\\|>)?[^<]*(<\\|content_(text|thinking|invoke_tool_json)\\|>((?!<\\|end_message\\|>|<\\|content_model_end).)*)?)$",
  "s",
);

const CALL_WITHOUT_NUMBER = /^the id of a call/;

type PythonMessage = Readonly<Record<string, unknown>>;
type Change = (message: PythonMessage) => PythonMessage;
type Delta = { readonly text?: string; readonly thinking?: string };

/** The text of an answer that was read. */
function answerOf({ operation, tokenizer }: Difference): string {
  return "tokens" in operation ? tokenizer.decode(operation.tokens) : "";
}

/** What an answer was read as, at once or as a stream. */
function messageOf(result: unknown): PythonMessage | undefined {
  const last = Array.isArray(result) ? result.at(-1) : result;
  return (last as { readonly message?: PythonMessage } | undefined)?.message;
}

/** Whether two readings are equal once what is allowed to differ is taken away. */
function isEqualReading(
  { ours, theirs }: Difference,
  change: Change,
  changeDeltas: (deltas: readonly Delta[]) => unknown = (deltas) => merged(deltas as never),
): boolean {
  const [own, python] = [ours, theirs].map(({ ok }) => {
    const message = messageOf(ok);
    if (message === undefined) return undefined;
    const { termination } = ok as { readonly termination?: string };
    const deltas = Array.isArray(ok) ? changeDeltas(ok.slice(0, -1)) : [];
    return { termination, deltas, message: comparable(change(message)) };
  });
  return own !== undefined && isDeepStrictEqual(own, python);
}

function unparsedOf(message: PythonMessage | undefined): readonly { readonly error: string }[] {
  return (message?.["unparsed_tool_calls"] ?? []) as { readonly error: string }[];
}

function hasUnparsed({ ours, theirs }: Difference, error: RegExp): boolean {
  return [ours, theirs].some(({ ok }) => unparsedOf(messageOf(ok)).some((call) => error.test(call.error)));
}

const withoutUnparsed =
  (error: RegExp): Change =>
  (message) => {
    const left = unparsedOf(message).filter((call) => !error.test(call.error));
    const { unparsed_tool_calls: _, ...rest } = message;
    return left.length === 0 ? rest : { ...rest, unparsed_tool_calls: left };
  };

const readHarmony: Change = (message) => {
  const { content, ...rest } = withoutUnparsed(/^unterminated tool block/)(message);
  const isRaw = typeof content === "string" && /<\|message\|>|to=functions/.test(content);
  return { ...rest, content: isRaw ? "" : content };
};

const withoutTags = (text: string): string => text.replaceAll(/<\/?think>/g, "");

function textWithoutTags({ content }: PythonMessage): string {
  return withoutTags(typeof content === "string" ? content : joined(content as readonly Delta[]));
}

const kimiWithoutTags: Change = (message) => ({
  ...withoutUnparsed(CALL_WITHOUT_NUMBER)(message),
  content: textWithoutTags(message),
});

const deltasWithoutTags = (deltas: readonly Delta[]): string => withoutTags(joined(deltas));

const joined = (parts: readonly Delta[]): string =>
  parts.map(({ text, thinking }) => text ?? thinking ?? "").join("");

/** All positions and the trained ones, as text; a parsed answer unchanged. */
function learntText(result: unknown, tokenizer: RendererTokenizer, change = (text: string) => text): unknown {
  if (messageOf(result) !== undefined) return change(JSON.stringify(result));
  const written = (position: number | "image") =>
    position === "image" ? "<image>" : tokenizer.decode([position]);
  return examplesOf(result).map(({ tokens, weights = [] }) => {
    const texts = (tokens as readonly (number | "image")[]).map(written);
    const learnt = texts.filter((_, index) => weights[index]! > 0);
    return [texts, learnt].map((run) => change(run.join("")));
  });
}
