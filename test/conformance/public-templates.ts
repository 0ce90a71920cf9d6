/** Chat templates of public packages: whether the template renderer trains on what it should with each. */
import { TinkerError } from "../../src/errors.js";
import { type Message, type Renderer, textOf, thinkingOf } from "../../src/renderers/index.js";
import { templateRenderer } from "../../src/renderers/template.js";
import {
  type ChatMessage,
  compileChatTemplate,
  type RenderChat,
} from "../../src/tokenizers/chat-template.js";
import { CharacterTokenizer, PLAIN_TOKENS } from "../support/character-tokenizer.js";

/** A template as it was found. */
export interface PublicTemplate {
  readonly name: string;
  readonly source: string;
}

export const ENDS = { bosToken: "<s>", eosToken: "</s>" };
export const NOW = new Date(2026, 6, 26, 13, 5, 9);

/** Texts in a template that its model surely has a token of its own for. */
const SIGNS = /<[^<>\s{}'"=#]{1,40}>|\[\/?[A-Z_]{3,}\]|\[\|\w+\|\]|\[gMASK\]|\[e~\[|\]~b\]/g;

export async function writerOf({ source }: PublicTemplate): Promise<RenderChat> {
  const settings = { bos_token: ENDS.bosToken, eos_token: ENDS.eosToken };
  return (await compileChatTemplate(new Map([["default", source]]), settings))!;
}

export async function rendererOf(template: PublicTemplate): Promise<Renderer> {
  const { source } = template;
  const applyChatTemplate = await writerOf(template);
  const asked = [{ role: "user", content: "?" }];
  const written = [asked, [...asked, { role: "assistant", content: "!" }, ...asked]].map((messages) => {
    try {
      return applyChatTemplate(messages, { now: () => NOW });
    } catch {
      return "";
    }
  });
  const signs = [source, ...written].flatMap((text) => text.match(SIGNS) ?? []);
  const special = [...new Set([...Object.values(ENDS), ...signs])].filter(
    (sign) => !PLAIN_TOKENS.includes(sign),
  );
  const tokenizer = new CharacterTokenizer(ENDS, special);
  return templateRenderer(Object.assign(tokenizer, { applyChatTemplate }), { now: () => NOW });
}

const user = (content: string): Message => ({ role: "user", content });
const answer = (text: string, thinking?: string): Message => ({
  role: "assistant",
  content:
    thinking === undefined
      ? text
      : [
          { type: "thinking", thinking },
          { type: "text", text },
        ],
});
const calling = (text: string, ...names: readonly string[]): Message => ({
  role: "assistant",
  content: text,
  toolCalls: names.map((name, index) => ({
    id: `callid00${index}`,
    name,
    arguments: `{"city": "argument${index}x", "days": 2}`,
  })),
});
const result = (content: string, index = 0): Message => ({
  role: "tool",
  content,
  toolCallId: `callid00${index}`,
  name: index === 0 ? "weather" : "clock",
});
const TOOLS = ["weather", "clock"].map((name) => ({
  name,
  description: `Tells the ${name} description.`,
  parameters: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city"],
  },
}));

/** The user's words begin with `u`, the model's with `a`, so that both are found in a text. */
export const CONVERSATIONS: Readonly<
  Record<string, { readonly messages: readonly Message[]; readonly hasTools?: boolean }>
> = {
  plain: { messages: [user("uOne uTwo"), answer("aOne aTwo")] },
  turns: {
    messages: [user("uOne uTwo"), answer("aOne aTwo"), user("uThree\nuFour"), answer("aThree\naFour")],
  },
  system: { messages: [{ role: "system", content: "uSystem" }, user("uOne"), answer("aOne")] },
  thoughts: { messages: [user("uOne"), answer("aOne", "aThought"), user("uTwo"), answer("aTwo", "aSecond")] },
  tools: { messages: [user("uOne"), answer("aOne")], hasTools: true },
  call: { messages: [user("uOne"), calling("", "weather")], hasTools: true },
  cycle: {
    messages: [user("uOne"), calling("aText", "weather"), result("uResult"), answer("aTwo")],
    hasTools: true,
  },
  calls: {
    messages: [
      user("uOne"),
      calling("", "weather", "clock"),
      result("uResult"),
      result("uOther", 1),
      answer("aTwo"),
    ],
    hasTools: true,
  },
};

const TOOL = { type: "function", function: { ...TOOLS[0]!, description: "Tells <b>the</b> & more, näher" } };
const NO_ARGUMENTS = { name: "now", description: "", parameters: { type: "object", properties: {} } };
const CALL_ARGUMENTS = [
  '{"city": "Zürich", "days": 2}',
  { city: "Zürich <a>", days: 2, until: null, deep: { x: [1.5, 2, true, "a'b"] } },
];

/** A conversation as templates take it, with further variables. */
export interface RawConversation {
  readonly messages: readonly ChatMessage[];
  readonly add_generation_prompt: boolean;
  readonly tools?: readonly object[];
  readonly [variable: string]: unknown;
}

/** Conversations in the words of templates: scripts, white space, thoughts, calls in both forms, parts, roles. */
export const RAW_CONVERSATIONS: readonly RawConversation[] = [true, false].flatMap((asks) =>
  rawConversations(asks),
);

function rawConversations(asks: boolean): readonly RawConversation[] {
  const said = (role: string, content: unknown, more: object = {}): ChatMessage => ({
    role,
    content,
    ...more,
  });
  const ask = (content: unknown) => said("user", content);
  const reply = (content: unknown, more: object = {}) => said("assistant", content, more);
  const called = (given: unknown, name = "weather", id = "call12345") => ({
    type: "function",
    id,
    function: { name, arguments: given },
  });
  const told = (content: string, name = "weather", id = "call12345") =>
    said("tool", content, { name, tool_call_id: id });
  const both = [TOOL, { type: "function", function: NO_ARGUMENTS }];
  const of = (messages: readonly ChatMessage[], more: object = {}): RawConversation => ({
    messages,
    add_generation_prompt: asks,
    ...more,
  });
  return [
    of([ask("Hello  \n there ")]),
    of([said("system", " Be <brief> & kind. "), ask("Hi 'you' \"x\"")]),
    of([ask("Hi"), reply("Hello!\n"), ask("2+2?")]),
    of([
      said("system", "S"),
      ask("Hi"),
      reply("<think>\nhm\n</think>\n\nHello"),
      ask("ünïcode 日本 🎉"),
      reply("4"),
    ]),
    of([
      ask("Hi"),
      reply("Hello", { reasoning_content: "I greet\n" }),
      ask("2?"),
      reply("4", { reasoning_content: "\nso " }),
    ]),
    of([ask("Hi"), reply("Hello", { thinking: "I greet" }), ask("2+2?")]),
    of([said("system", "S"), ask("Weather?")], { tools: both }),
    of([ask("Weather?")], { tools: [TOOL] }),
    ...CALL_ARGUMENTS.flatMap((given) => [
      ...["", null, "Let me see."].flatMap((text) => {
        const start = [said("system", "S"), ask("Weather?"), reply(text, { tool_calls: [called(given)] })];
        return [
          of(start, { tools: [TOOL] }),
          of([...start, told("Sunny & <warm>"), reply("It is sunny."), ask("Thanks")], { tools: both }),
        ];
      }),
      of(
        [
          ask("Weather?"),
          reply("", {
            tool_calls: [called(given), called(given, "now", "call67890")],
            reasoning_content: "two",
          }),
          told("Sunny"),
          told('{"a": 1}', "now", "call67890"),
        ],
        { tools: both },
      ),
    ]),
    of([ask("Hi"), reply("Hello")], { enable_thinking: false }),
    of([ask("Hi"), reply("Hello"), ask("x")], { enable_thinking: true, reasoning_effort: "high" }),
    of([
      ask([
        { type: "text", text: "part one" },
        { type: "text", text: " two" },
      ]),
    ]),
    of([said("developer", "Dev"), ask("Hi")]),
    of([ask("Hi"), ask("again")]),
  ];
}

/** What became of a conversation: what is wrong, why it was refused, or nothing. */
export type Outcome =
  | { readonly wrong: string }
  | { readonly refused: string }
  | { readonly prompts: readonly string[] };

export function trainOn(renderer: Renderer, name: string): Outcome {
  const { messages: spoken, hasTools = false } = CONVERSATIONS[name]!;
  try {
    const messages = hasTools ? [...renderer.declareTools(TOOLS), ...spoken] : spoken;
    const prompts: string[] = [];
    const trained: string[] = [];
    for (const { input, weights } of renderer.buildSupervisedExamples(messages, "all_assistant_messages")) {
      const tokens = [...input.toInts()];
      const isTrained = (index: number) => weights[index] === 1;
      for (const [index] of tokens.entries()) {
        if (!isTrained(index)) continue;
        if (index === 0 || !isTrained(index - 1)) {
          prompts.push(renderer.tokenizer.decode(tokens.slice(0, index)));
          trained.push("");
        }
        trained[trained.length - 1] += renderer.tokenizer.decode([tokens[index]!]);
        const isLast = index === tokens.length - 1 || !isTrained(index + 1);
        if (isLast && !(renderer.stopSequences as readonly number[]).includes(tokens[index]!))
          return { wrong: `trains on ${JSON.stringify(trained.at(-1))} without an end token` };
      }
    }
    const all = trained.join("\n");
    const learnt = /\bu[A-Z]\w+/.exec(all);
    if (learnt !== null) return { wrong: `trains on the user's ${learnt[0]}` };
    const answers = messages.filter(({ role }) => role === "assistant");
    if (trained.length !== answers.length)
      return { wrong: `trains on ${trained.length} of ${answers.length} answers` };
    for (const [index, message] of answers.entries()) {
      const words = [
        textOf(message),
        thinkingOf(message),
        ...(message.toolCalls ?? []).flatMap(({ name, arguments: given }) => [
          name,
          /argument\dx/.exec(given)![0],
        ]),
      ];
      const missing = words
        .flatMap((text) => text.split(/\s+/))
        .find((word) => !trained[index]!.includes(word));
      if (missing !== undefined) return { wrong: `does not train on ${missing}` };
    }
    for (const [index, message] of messages.entries()) {
      if (message.role !== "assistant") continue;
      const prompt = renderer.tokenizer.decode(renderer.buildPrompt(messages.slice(0, index)).toInts());
      if (!prompts.includes(prompt))
        return { wrong: `no answer follows the prompt ${JSON.stringify(prompt.slice(-60))}` };
    }
    return { prompts };
  } catch (error) {
    if (error instanceof TinkerError) return { refused: error.message };
    throw error;
  }
}
