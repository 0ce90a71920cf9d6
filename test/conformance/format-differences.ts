/** Where our formats differ from the judges of formats, and why. */
import { type Message, textOf, thinkingOf } from "../../src/renderers/index.js";
import { strip } from "../../src/renderers/python-text.js";
import type { Conversation } from "./conversations.js";
import type { FormatOutcome, FormatPiece } from "./format-operations.js";

/** What is compared, and with whom; `renderers` is the package of that name. */
export type FormatJudge = `${"template" | "tml-renderers" | "renderers"} ${"prompt" | "example" | "answer"}`;

export interface JudgedFormat {
  readonly renderer: string;
  readonly judge: FormatJudge;
  readonly conversation: Conversation;
  readonly ours: FormatOutcome;
  readonly theirs: FormatOutcome;
  /** Whether our prompt of this conversation is that of the model's template. */
  readonly isTemplate?: boolean;
}

/** A difference that is known. One that never occurs any more must leave the list. */
export interface FormatDifference {
  readonly name: string;
  /** Whose side we take. */
  readonly side: "template" | "tml-renderers" | "ours";
  readonly reason: string;
  /** The judges it occurs with. */
  readonly judges: RegExp;
  readonly renderers: RegExp;
  readonly explains: (given: JudgedFormat) => boolean;
}

const answers = ({ conversation }: JudgedFormat): readonly Message[] =>
  conversation.messages.filter(({ role }) => role === "assistant");

export const FORMAT_DIFFERENCES: readonly FormatDifference[] = [
  {
    name: "the template decides",
    side: "template",
    reason: "ours is what the model's own template writes, and the judge writes something else",
    judges: /renderers (prompt|example)/,
    renderers: /./,
    explains: ({ isTemplate, ours, theirs }) => isTemplate === true && written(ours) !== written(theirs),
  },
  {
    name: "what a prompt opened is not trained on",
    side: "ours",
    reason:
      "renderers trains on the <think> that its own prompt ends with, which is never sampled, or on one behind a prompt that does not think",
    judges: /^renderers example/,
    renderers: /./,
    explains: ({ ours, theirs }) =>
      written(ours) === written(theirs) &&
      /^<think>\n*(<\/think>\n*)?$/.test(trained(theirs, false).slice(0, -trained(ours, false).length)) &&
      trained(theirs, false).endsWith(trained(ours, false)),
  },
  {
    name: "white space around an answer",
    side: "ours",
    reason: "renderers cuts it off; here it is read, so that the answer is written again as it was sampled",
    judges: /^renderers answer/,
    renderers: /./,
    explains: ({ ours, theirs }) => dense(ours) !== undefined && dense(ours) === dense(theirs),
  },
  {
    name: "a system message without text",
    side: "tml-renderers",
    reason: "renderers writes its sign, tml-renderers nothing",
    judges: /^renderers (prompt|example)/,
    renderers: /^glm5_3/,
    explains: ({ ours, theirs }) => withoutEmptySystem(written(theirs)) === withoutEmptySystem(written(ours)),
  },
  {
    name: "the end of the last answer",
    side: "ours",
    reason: "renderers writes none behind the last answer of a conversation, though it is sampled",
    judges: /^renderers example/,
    renderers: /^glm5_3/,
    explains: ({ ours, theirs }) =>
      withoutEmptySystem(written(ours).replace(/<\|(user|observation)\|>$/, "")) ===
      withoutEmptySystem(written(theirs)),
  },
  {
    name: "defaults in declarations",
    side: "template",
    reason: "Kimi's tokenizer code prints numbers and truth values as Python does, renderers as JSON",
    judges: /^renderers (prompt|example)/,
    renderers: /^kimi/,
    explains: ({ ours, theirs }) => asJsonDefaults(written(ours)) === written(theirs),
  },
  {
    name: "newlines alone are no text before a call",
    side: "ours",
    reason: "the template writes one more newline behind them, which no reader could tell from theirs",
    judges: /prompt|example/,
    renderers: /^qwen3(?!_[58])/,
    explains: (given) =>
      answers(given).some(
        (each) => hasCalls(each) && textOf(each) !== "" && strip(textOf(each), "\n") === "",
      ),
  },
  {
    name: "thoughts that are written out in an answer's text",
    side: "ours",
    reason: "they are read as thoughts; the judge leaves the tags in the text, as they are or as plain text",
    judges: /prompt|example/,
    renderers: /^(nemotron3|qwen3_vl$|glm5_3|deepseekv3|qwen3_8|deepseekv4_1)/,
    explains: (given) => answers(given).some((each) => /<\/?think>/.test(textOf(each))),
  },
  {
    name: "the template's tags of thoughts are signs",
    side: "template",
    reason:
      "a block of thoughts that an answer's text brings is written by the template as every other; tml-renderers encodes its tags as plain text",
    judges: /^tml-renderers (prompt|example)/,
    renderers: /^qwen3(_5|_disable|$)/,
    explains: ({ isTemplate, ours, theirs }) =>
      isTemplate === true && /<\/?think>/.test(written(ours)) && written(ours) === written(theirs),
  },
  {
    name: "all calls, with text before them",
    side: "tml-renderers",
    reason:
      "GPT-OSS's template writes the first of several calls alone, takes text beside calls for thoughts and refuses it beside thoughts",
    judges: /^template/,
    renderers: /^gpt_oss/,
    explains: (given) =>
      answers(given).some((each) => hasCalls(each) && (textOf(each) !== "" || each.toolCalls!.length > 1)),
  },
  {
    name: "the block of thoughts that the prompt opened",
    side: "tml-renderers",
    reason:
      "Nemotron's template trains <think></think>, which cannot follow a prompt that ends with <think> and a newline",
    judges: /^(template|renderers) example/,
    renderers: /^nemotron3(?!.*disable)/,
    explains: (given) => strip(thinkingOf(answers(given).at(-1)!)) === "",
  },
  {
    name: "thoughts of calls stay until an answer was sampled behind them",
    side: "tml-renderers",
    reason:
      "GPT-OSS's template drops them from the example of the answer that was sampled with them before it",
    judges: /^template example/,
    renderers: /^gpt_oss/,
    explains: (given) => answers(given).some((each) => hasCalls(each) && thinkingOf(each) !== ""),
  },
  {
    name: "thoughts that the prompt forbids are refused",
    side: "ours",
    reason: "the judge trains on them behind a prompt that says not to think, or drops them without a word",
    judges: /example/,
    renderers: /disable|instruct|^deepseekv3$/,
    explains: ({ ours }) => /not to think|does not think/.test(ours.error ?? ""),
  },
  {
    name: "newlines around calls are the format's",
    side: "ours",
    reason:
      "tml-renderers reads them as text of the answer, which grows each time that it is read and written",
    judges: /^tml-renderers answer/,
    renderers: /^qwen3(?!_[58])/,
    explains: (given) =>
      answers(given).some(hasCalls) &&
      [given.ours, given.theirs].map(withoutLastNewlines).every((each, _, [first]) => each === first),
  },
  {
    name: "an answer that says nothing can be read",
    side: "ours",
    reason: "tml-renderers refuses to read it",
    judges: /^tml-renderers answer/,
    renderers: /./,
    explains: ({ theirs }) => theirs.error?.includes("without message content") === true,
  },
  {
    name: "signs of Harmony in a text",
    side: "ours",
    reason: "GPT-OSS's template refuses a text with them; here they are text",
    judges: /^template/,
    renderers: /^gpt_oss/,
    explains: ({ theirs }) => theirs.error?.includes("<|channel|> tags") === true,
  },
  {
    name: "an empty description is declared",
    side: "template",
    reason:
      "GPT-OSS's template writes a comment without words and Nemotron's an empty tag, tml-renderers neither",
    judges: /^tml-renderers (prompt|example)/,
    renderers: /^(gpt_oss|nemotron3)/,
    explains: ({ conversation }) =>
      conversation.tools?.some(({ description }) => description === "") === true,
  },
  {
    name: "Nemotron's words before an answer without thoughts",
    side: "template",
    reason:
      "tml-renderers trims them, writes a newline behind the block of thoughts of an empty answer, and prints numbers of calls in another way; what is trained on is the same otherwise",
    judges: /^tml-renderers example/,
    renderers: /^nemotron3/,
    explains: ({ ours, theirs }) =>
      trained(ours) !== "" && asFloats(trained(ours)) === asFloats(trained(theirs)),
  },
  {
    name: "tools and thoughts that tml-renderers has not",
    side: "ours",
    reason:
      "it refuses declared tools with DeepSeek V3.1, and thoughts in the mode without them, which are left out here",
    judges: /^tml-renderers/,
    renderers: /^deepseekv3/,
    explains: ({ theirs }) => /unsupported content type|no reasoning grammar/.test(theirs.error ?? ""),
  },
  {
    name: "a prompt behind an answer asks for another",
    side: "ours",
    reason: "the judges end with the answer, so that nothing tells the model to speak",
    judges: /prompt/,
    renderers: /^deepseekv3/,
    explains: ({ conversation }) => conversation.messages.at(-1)!.role === "assistant",
  },
  {
    name: "an answer without thoughts closes their block",
    side: "ours",
    reason: "tml-renderers trains text within the block that the prompt opened, which then is never closed",
    judges: /^tml-renderers example/,
    renderers: /^deepseekv3_thinking$/,
    explains: (given) => thinkingOf(answers(given).at(-1)!) === "",
  },
  {
    name: "thoughts of the answer that is trained on",
    side: "tml-renderers",
    reason:
      "the templates of DeepSeek and Kimi drop the thoughts of every finished answer, also of the one that is sampled with them",
    judges: /^(template|renderers) example/,
    renderers: /^(deepseekv3_thinking|kimi)/,
    explains: (given) => {
      const [own, other] = [given.ours, given.theirs].map((each) => asJsonDefaults(written(each))) as [
        string,
        string,
      ];
      // Thoughts may hold tags themselves.
      const thoughts = `<think>${thinkingOf(answers(given).at(-1)!).normalize("NFC")}`;
      const start = own.includes(thoughts) ? own.lastIndexOf(thoughts) : own.lastIndexOf("<think>");
      const close = own.indexOf("</think>", own.includes(thoughts) ? start + thoughts.length : start);
      const variants = [close, close + "</think>".length].map((end) => own.slice(0, start) + own.slice(end));
      return variants.includes(other) || own.replace(THOUGHTS, "") === other.replace(THOUGHTS, "");
    },
  },
  {
    name: "Inkling as tml-renderers writes it",
    side: "tml-renderers",
    reason:
      "its prompts end before <|message_model|>, which the model writes and is trained on; tools stand behind the system message, keys of arguments keep their order, and a call has no block without text before it; renderers does each the other way",
    judges: /^renderers (prompt|example)/,
    renderers: /^tml_v0$/,
    explains: ({ judge, ours, theirs }) => {
      const [own, other] = [ours, theirs].map((each) => inkling(written(each))) as [string, string];
      if (judge === "renderers prompt") return `${own}<|message_model|>` === other;
      const [learnt, learntThere] = [ours, theirs].map((each) =>
        inkling(trained(each, false)).replace(/<\|message_model\|>|<\|content_text\|><\|end_message\|>/g, ""),
      );
      return own === other && learnt === learntThere;
    },
  },
  {
    name: "an empty system prompt beside tools is none",
    side: "ours",
    reason:
      "tools are declared beside a system prompt or without one; tml-renderers writes a block without text",
    judges: /^tml-renderers (prompt|example)/,
    renderers: /^tml_v0$/,
    explains: ({ conversation: { tools, messages }, ours, theirs }) =>
      tools !== undefined &&
      messages[0]!.role === "system" &&
      textOf(messages[0]!) === "" &&
      asFloats(written(ours)) === asFloats(written(theirs)).replace(EMPTY_SYSTEM, ""),
  },
  {
    name: "digits of long integers",
    side: "ours",
    reason:
      "they stay in the arguments of a call; tml-renderers makes a float of them, or reads GLM's as text",
    judges: /^tml-renderers/,
    renderers: /^(tml_v0$|glm5_3)/,
    explains: ({ judge, renderer, conversation, ours, theirs }) =>
      judge === "tml-renderers answer"
        ? /\d{20,}/.test(JSON.stringify(conversation.messages.at(-1)))
        : renderer === "tml_v0" && asFloats(written(ours)) === asFloats(written(theirs)),
  },
  {
    name: "DeepSeek V3.1 calls",
    side: "ours",
    reason: "tml-renderers ends an answer between its text and its calls, and prints their arguments anew",
    judges: /^tml-renderers/,
    renderers: /^deepseekv3/,
    explains: (given) => answers(given).some(hasCalls),
  },
  {
    name: "GLM's schemas keep their order",
    side: "ours",
    reason: "tml-renderers sorts their keys",
    judges: /^tml-renderers (prompt|example)/,
    renderers: /^glm5_3/,
    explains: ({ conversation }) => conversation.tools !== undefined,
  },
  {
    name: "GLM's answers end with the role that speaks next",
    side: "ours",
    reason: "tml-renderers trains <|endoftext|> behind the last answer alone, and <|user|> behind all others",
    judges: /^tml-renderers example/,
    renderers: /^glm5_3/,
    explains: ({ ours, theirs }) =>
      JSON.stringify((ours.ok as object[]).slice(0, -1)).normalize("NFC") ===
      JSON.stringify((theirs.ok as object[]).slice(0, -1)).normalize("NFC"),
  },
  {
    name: "arguments stay as they were written",
    side: "template",
    reason:
      "Kimi's template writes a text as it is; tml-renderers prints it anew, and digits of long integers are lost",
    judges: /^tml-renderers (prompt|example)/,
    renderers: /^kimi/,
    explains: (given) => answers(given).some(hasCalls),
  },
  {
    name: "Kimi K2.5 declares tools as TypeScript",
    side: "ours",
    reason: "the model's tokenizer code does; tml-renderers writes JSON",
    judges: /^tml-renderers (prompt|example)/,
    renderers: /^kimi_k2[56]/,
    explains: ({ conversation }) => conversation.tools !== undefined,
  },
  {
    name: "numbers as Python prints them",
    side: "template",
    reason: "the template prints 1e-07 and all digits of long integers, tml-renderers 1e-7 and a float",
    judges: /^tml-renderers/,
    renderers: /^gpt_oss/,
    explains: (given) =>
      answers(given).some(({ toolCalls = [] }) =>
        toolCalls.some(({ arguments: json }) => /\de-?\d|\d{20}/i.test(json)),
      ),
  },
  {
    name: "a parameter without a name",
    side: "ours",
    reason:
      "the call is reported as broken, as in the Python cookbook; the judges read it, or take GLM's for text",
    judges: /renderers answer$/,
    renderers: /^(deepseekv4_1|glm5_3|nemotron3|qwen3_[58])/,
    explains: (given) =>
      answers(given).some(({ toolCalls = [] }) =>
        toolCalls.some(({ arguments: json }) => /[{,]\s*""\s*:/.test(json)),
      ),
  },
  {
    name: "white space around thoughts",
    side: "ours",
    reason:
      "kept where the format keeps it (GLM), and cut off where a model writes newlines around them (Nemotron); tml-renderers does the opposite",
    judges: /^tml-renderers answer/,
    renderers: /^(nemotron3|glm5_3)/,
    explains: ({ ours, theirs }) => dense(ours) !== undefined && dense(ours) === dense(theirs),
  },
];

/** Numbers in one spelling: long integers without their last digits, exponents without signs of their own. */
const asFloats = (text: string): string =>
  text.replace(/\d{20,}/g, (digits) => String(Number(digits))).replace(/(?<=\de)\+|(?<=\de-)0(?=\d)/g, "");

const asJsonDefaults = (text: string): string =>
  text.replace(
    /(\/\/ Default: )(True|False)/g,
    (_, head: string, value: string) => head + value.toLowerCase(),
  );

const EMPTY_SYSTEM = "<|message_system|><|content_text|><|end_message|>";

/** Inkling's blocks without what renderers writes in another way. */
function inkling(text: string): string {
  return text
    .replace(/<\|message_model\|><\|content_text\|><\|end_message\|>(?=<\|message_model\|>)/g, "")
    .replace(EMPTY_SYSTEM, "")
    .replace(
      /^(<\|message_system\|>tool_declare.*?<\|end_message\|>)(<\|message_system\|>(?:(?!Thinking effort).)*?<\|end_message\|>)/s,
      "$2$1",
    )
    .replace(/("args":)(\{.*?\})(?=\}<\|end_message\|>)/gs, (whole, head: string, json: string) => {
      try {
        return head + JSON.stringify(sorted(JSON.parse(json)));
      } catch {
        return whole;
      }
    });
}

const sorted = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.entries(value)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([key, each]) => [key, sorted(each)]);
};

const THOUGHTS = /(?:<think>((?!<\/?think>).)*)?<\/think>/gs;

const hasCalls = ({ toolCalls = [] }: Message): boolean => toolCalls.length > 0;

const withoutEmptySystem = (text: string): string => text.replace(/<\|system\|>(?=<\|)/g, "");

/** What was read, without the newlines behind its text. */
function withoutLastNewlines({ ok, error }: FormatOutcome): string | undefined {
  const read = ok as { readonly text: string } | undefined;
  return read && error === undefined
    ? JSON.stringify({ ...read, text: read.text.replace(/\n+$/, "") })
    : undefined;
}

/** The text of a prompt or an example. */
const written = ({ ok }: FormatOutcome): string =>
  typeof ok === "string"
    ? ok
    : ((ok ?? []) as readonly FormatPiece[])
        .map(([text]) => text)
        .join("")
        .normalize("NFC");

/** The trained text of an example; without white space unless it is wanted. */
function trained({ ok }: FormatOutcome, isDense = true): string {
  const text = ((ok ?? []) as readonly FormatPiece[])
    .filter(([, , weight]) => weight === 1)
    .map(([text]) => text)
    .join("")
    .normalize("NFC");
  return isDense ? text.replace(WHITE_SPACE, "") : text;
}

/** What was read, without white space. */
const dense = ({ ok }: FormatOutcome): string | undefined =>
  ok === undefined
    ? undefined
    : JSON.stringify(ok, (_, value: unknown) =>
        typeof value === "string" ? value.normalize("NFC").replace(WHITE_SPACE, "") : value,
      );

/** Of JavaScript, Python and Rust together. */
const WHITE_SPACE = /[\s\p{Cc}]+/gu;
