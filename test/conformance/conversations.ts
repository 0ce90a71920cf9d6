/** Seeded conversations for renderers, with whatever may go wrong in one. */
import { crc32, deflateSync } from "node:zlib";
import {
  type ContentPart,
  type Message,
  type ToolCall,
  type ToolDeclaration,
  type TrainOn,
  textOf,
  thinkingOf,
} from "../../src/renderers/index.js";
import { printPythonJson, readPythonJson } from "../../src/renderers/python-json.js";
import { strip } from "../../src/renderers/python-text.js";
import { PLAIN_TOKENS, SPECIAL_TOKENS } from "../support/character-tokenizer.js";
import type { Make, Random } from "./random.js";

export interface Conversation {
  readonly messages: readonly Message[];
  /** Declared before the messages, with this system prompt. */
  readonly tools?: readonly ToolDeclaration[];
  readonly system?: string;
}

export const TRAIN_ON = [
  "last_assistant_message",
  "last_assistant_turn",
  "all_assistant_messages",
  "all_messages",
  "all_tokens",
  "all_user_and_system_messages",
  "customized",
] as const satisfies readonly TrainOn[];

const PIECES = [
  ..."What is 2 + 3?|The answer is 5.|hello|Paris|x = 7|user|assistant|User:|\n\nUser:|Assistant: yes".split(
    "|",
  ),
  ...[
    "a\u0301e\u0308",
    "naïve café",
    "日本語の文",
    "العربية",
    "👩‍👩‍👧 😀",
    "𝄞𝒳",
    "\u00a0\u2003",
    "\u200b",
    "İıß",
    "ﷺ",
  ],
  ...["\n", "\n\n", " ", "  ", "\t", "\r\n", "\u0085", "\u2028", "\u000b", "\u001c", "\u3000", "\ufeff"],
  ...[
    '{"name": "f", "arguments": {}}',
    "1.0",
    "```js\nlet a;\n```",
    "\\n",
    '"',
    "&lt;",
    "<b>",
    "</",
    "<",
    "$&",
    "|>",
  ],
];
const TAGS = [
  "<think>",
  "</think>",
  "<think>\nhm\n</think>\n\n",
  "<think></think>",
  "<think>why</think>",
  "<thin",
  "k>",
];
const TOOL_TEXTS = [
  '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2.0}}\n</tool_call>',
  '<tool_call>{"name": "add", "arguments": "{}"}</tool_call>',
  '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
  '<tool_call>{"arguments": {}}</tool_call>',
  '<tool_call>["add"]</tool_call>',
  "<tool_call>{broken</tool_call>",
  "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\ntwo\n</parameter>\n</function>\n</tool_call>",
  "<tool_call>\n<function=add>\n</function>\n</tool_call>",
  '<tool_call>\n<function=add>\n<parameter=a>\n{"x": [1.0, null]}\n</parameter>\n',
  "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
  "<tool_call>add<arg_key>a</arg_key></tool_call>",
  '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
  "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{oops<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
  '\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="add">\n<｜DSML｜ parameter name="a" string="false">1</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>',
  '\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="add">\n<｜DSML｜ parameter name="a" string="true">x</｜DSML｜ parameter>\n</｜DSML｜ calls>',
  '<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|><|tool_calls_section_end|>',
  "<|tool_calls_section_begin|><|tool_call_begin|>add<|tool_call_argument_begin|>{a}<|tool_call_end|><|tool_calls_section_end|>",
  "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes",
  ' to=functions.add<|channel|>commentary <|constrain|>json<|message|>{"a": 1}',
  "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{bad",
  "<|content_thinking|>hm<|end_message|><|message_model|><|content_text|>yes<|end_message|>",
];

export const content: Make<string> = (random) => {
  if (random.chance(0.08)) return "";
  const parts = random.times(random.pick([1, 1, 2, 3, 6]), (each) => {
    if (each.chance(0.06)) return each.pick(SPECIAL_TOKENS);
    if (each.chance(0.05)) return each.pick(PLAIN_TOKENS);
    if (each.chance(0.02)) return each.pick(TOOL_TEXTS);
    return each.pick(PIECES);
  });
  return parts.join(random.pick(["", " ", ""]));
};

/** What a model may write, also where no format would. */
export const answerText: Make<string> = (random) =>
  random
    .times(random.integer(0, 5), (each) => {
      const roll = each.next();
      if (roll < 0.3) return each.pick(TAGS);
      if (roll < 0.6) return each.pick(TOOL_TEXTS);
      if (roll < 0.65) return each.pick([...SPECIAL_TOKENS, ...PLAIN_TOKENS]);
      return each.pick(PIECES);
    })
    .join("");

/** For judges that make control tokens of typed signs; ours never does (renderer-laws.test.ts). */
export function withoutSigns(given: Conversation): Conversation {
  const signs = [...SPECIAL_TOKENS, ...PLAIN_TOKENS];
  const plain = signs.reduce((json, sign) => json.replaceAll(sign, ""), JSON.stringify(given));
  return JSON.parse(plain) as Conversation;
}

const NUMBERS = [
  "0",
  "-0",
  "1.0",
  "-0.0",
  "1e22",
  "1E5",
  "1e-7",
  "0.1",
  "1e16",
  "123456789012345678901234567890",
  "5e-324",
];
const STRINGS = [
  '""',
  '"x"',
  '"é"',
  '"\\u00e9\\n\\t\\"\\\\\\/"',
  '"\\ud83d\\ude00"',
  '"😀"',
  '"\u2028"',
  '"\\u0000\\u007f"',
  '" a "',
  '"<tool_call>"',
  '"1"',
  '"true"',
];
const KEYS = ["a", "b", "10", "2", "", "naïve", "__proto__", "constructor", "a b", "toString"];

/** JSON that two writers are likely to write differently. */
function jsonText(random: Random, depth = 0): string {
  const roll = random.next();
  if (depth > 2 || roll < 0.25) return random.pick(NUMBERS);
  if (roll < 0.55) return random.pick(STRINGS);
  if (roll < 0.7) return random.pick(["true", "false", "null"]);
  if (roll < 0.85)
    return `[${random.times(random.integer(0, 3), (each) => jsonText(each, depth + 1)).join(random.pick([",", ", "]))}]`;
  return jsonObject(random, depth + 1);
}

function jsonObject(random: Random, depth = 0): string {
  const [comma, colon] = random.pick([
    [", ", ": "],
    [",", ":"],
    [" ,\n", " : "],
  ] as const);
  const fields = random.times(
    random.pick([0, 1, 2, 4]),
    (each) => `${JSON.stringify(each.pick(KEYS))}${colon}${jsonText(each, depth + 1)}`,
  );
  return `{${fields.join(comma)}}`;
}

const toolArguments: Make<string> = (random) =>
  random.chance(0.03) ? random.pick(["", "{", "[1]", '"x"', "null", "{'a': 1}"]) : jsonObject(random);

const NAMES = ["add", "get_weather", "a.b", "f-1", "naïve"];

const declaration: Make<ToolDeclaration> = (random) => ({
  name: random.pick(NAMES),
  description: random.pick(["Adds.", "", 'It\'s "quoted" <b>\nand & naïve 😀', "Looks up the weather."]),
  parameters: random.pick([
    { type: "object", properties: {} },
    {
      properties: {
        any: { type: ["number", "null"], enum: [1, null, "x", true] },
        ref: { $ref: "#/$defs/a" },
      },
    },
    {},
    {
      type: "object",
      properties: {
        a: { type: "integer", description: "The first", default: 1 },
        b: { type: "number", enum: [1, 2.5] },
        10: { type: "array", items: { type: "string" }, description: "naïve ☃" },
      },
      required: ["a"],
    },
    {
      type: "object",
      properties: {
        place: {
          type: "object",
          description: "Where\nit is",
          properties: { city: { type: "string" }, at: { anyOf: [{ type: "string" }, { type: "null" }] } },
          required: ["city"],
          additionalProperties: false,
        },
        unit: { type: "string", enum: ["C", "F"], default: "C" },
        flag: { type: "boolean", default: true },
      },
      required: ["place", "unit"],
      additionalProperties: false,
    },
  ]),
});

function toolCalls(random: Random, first: number): ToolCall[] {
  return random.times(random.pick([1, 1, 2, 3]), (each) => {
    const name = each.pick(NAMES);
    const index = first++;
    const id = each.pick([undefined, `call_${index}`, `functions.${name}:${index}`]);
    return { ...(id !== undefined && { id }), name, arguments: toolArguments(each) };
  });
}

function assistantContent(random: Random): Message["content"] {
  const roll = random.next();
  if (roll < 0.4) return content(random);
  if (roll < 0.5) return random.pick(TAGS) + content(random);
  if (roll < 0.7)
    return [
      { type: "thinking", thinking: content(random) },
      { type: "text", text: content(random) },
    ];
  return random.times(
    random.pick([0, 1, 1, 2, 3]),
    (each): ContentPart =>
      each.chance(0.5)
        ? { type: "text", text: content(each) }
        : { type: "thinking", thinking: content(each) },
  );
}

const plainContent: Make<Message["content"]> = (random) =>
  random.chance(0.9)
    ? content(random)
    : random.times(random.pick([1, 1, 2]), (each) => ({ type: "text", text: content(each) }));

function results(random: Random, calls: readonly ToolCall[]): Message[] {
  const made = calls.map(
    ({ id, name }): Message => ({
      role: "tool",
      content: plainContent(random),
      ...(id !== undefined && random.chance(0.9) && { toolCallId: id }),
      ...(random.chance(0.6) && { name }),
    }),
  );
  if (random.chance(0.2)) made.reverse();
  if (random.chance(0.05)) made.pop();
  return made;
}

/** Mostly as conversations are: a system message or none, turns of user and assistant, calls with results. */
function turns(random: Random): Message[] {
  const messages: Message[] = [];
  if (random.chance(0.4)) messages.push({ role: "system", content: plainContent(random) });
  const hasTools = random.chance(0.35);
  for (let turn = random.integer(1, 3); turn > 0; turn--) {
    messages.push({ role: "user", content: plainContent(random) });
    for (let step = hasTools ? random.integer(0, 2) : 0; step > 0; step--) {
      const calls = toolCalls(random, messages.length);
      messages.push({ role: "assistant", content: assistantContent(random), toolCalls: calls });
      messages.push(...results(random, calls));
    }
    if (random.chance(0.9)) messages.push({ role: "assistant", content: assistantContent(random) });
  }
  return messages;
}

/** Roles in any order. */
function disorder(random: Random): Message[] {
  return random.times(random.integer(0, 5), (each): Message => {
    const role = each.pick(["system", "user", "assistant", "tool", "user", "assistant", "developer"]);
    if (role !== "assistant") return { role, content: plainContent(each) };
    return {
      role,
      content: assistantContent(each),
      ...(each.chance(0.3) && { toolCalls: toolCalls(each, 0) }),
    };
  });
}

export const conversation: Make<Conversation> = (random) => {
  const messages = random.chance(0.85) ? turns(random) : disorder(random);
  if (!random.chance(0.15)) return { messages };
  const [first, ...rest] = messages;
  return {
    messages: first?.role === "system" && random.chance(0.9) ? rest : messages,
    tools: random.times(random.integer(1, 3), declaration),
    system: random.chance(0.5) ? "" : content(random),
  };
};

/**
 * One without awkward texts: no signs in them and no white space around them, thoughts before text, arguments as Python
 * prints them, everybody in turn. Renderers have no reason to write it in more than one way.
 */
export const ordinaryConversation: Make<Conversation> = (random) => {
  for (;;) {
    const messages = conversation(random).messages.flatMap((message): Message[] => {
      const [text, thinking] = [clean(textOf(message)), clean(thinkingOf(message))];
      const { toolCalls, ...rest } = message;
      const calls = toolCalls?.filter((call) => isTame(call.arguments));
      return [
        {
          ...rest,
          content:
            thinking === ""
              ? text
              : [
                  { type: "thinking", thinking },
                  { type: "text", text },
                ],
          ...(calls !== undefined && calls.length > 0 && { toolCalls: calls.map(plainCall) }),
        },
      ];
    });
    if (messages.length > 1 && isInOrder(messages)) return { messages };
  }
};

/**
 * One that an agent might have: everybody in turn, thoughts before text, calls with results and with tools that are
 * declared; texts are as awkward as any.
 */
export const plausibleConversation: Make<Conversation> = (random) => {
  for (;;) {
    const given = conversation(random);
    const calls = given.messages.flatMap(({ toolCalls = [] }) => toolCalls);
    if (!isInOrder(given.messages) || !calls.every(({ arguments: json }) => isObject(json))) continue;
    let count = 0;
    let open: ToolCall[] = [];
    const messages = given.messages.map((message): Message => {
      const { role } = message;
      // White space to Python alone.
      const [text, thinking] = [textOf(message), thinkingOf(message)].map((each) =>
        each.replaceAll("\u001c", ".").replaceAll("\ufeff", "."),
      ) as [string, string];
      if (role === "tool") {
        const call = open.shift() ?? { id: "functions.add:0", name: "add" };
        return {
          role,
          content: text,
          ...(call.id !== undefined && { toolCallId: call.id }),
          name: call.name,
        };
      }
      if (role !== "assistant") return { role, content: text };
      const toolCalls = message.toolCalls?.map((call) => ({
        ...call,
        id: `functions.${call.name}:${count++}`,
      }));
      open = [...(toolCalls ?? [])];
      return {
        role,
        content:
          thinking === ""
            ? text
            : [
                { type: "thinking", thinking },
                { type: "text", text },
              ],
        ...(toolCalls !== undefined && { toolCalls }),
      };
    });
    if (messages.length === 0 || !messages.some(({ role }) => role === "user")) continue;
    const needsTools = calls.length > 0 && random.chance(0.8);
    const tools = given.tools ?? (needsTools ? random.times(random.integer(1, 3), declaration) : undefined);
    return { messages, ...(tools !== undefined && { tools }) };
  }
};

function isObject(json: string): boolean {
  try {
    return readPythonJson(json) instanceof Map;
  } catch {
    return false;
  }
}

const clean = (text: string): string => strip(text.replace(/[<>|｜\ufeff]/g, ""));

/** An object of which no text could be taken for another value, and no value loses white space. */
function isTame(json: string): boolean {
  try {
    const texts = JSON.stringify(JSON.parse(json)).match(/"(?:[^"\\]|\\.)*"/g) ?? [];
    return json.startsWith("{") && texts.every((text) => /^"[a-zA-Z]{1,2}"$/.test(text));
  } catch {
    return false;
  }
}

/** Names of other scripts are escaped in one format's JSON and stand as they are in another's. */
const plainCall = (call: ToolCall): ToolCall => ({
  ...call,
  name: call.name.replace("ï", "i"),
  arguments: printPythonJson(readPythonJson(call.arguments)),
});

/** Whom each of them may follow. */
const BEFORE: Readonly<Record<string, readonly string[]>> = {
  system: ["nobody"],
  user: ["nobody", "system", "assistant"],
  assistant: ["user", "tool"],
  tool: ["calls", "tool"],
};

export function isInOrder(messages: readonly Message[]): boolean {
  return messages.every(({ role }, index) => {
    const previous = messages[index - 1];
    const before = previous?.toolCalls === undefined ? (previous?.role ?? "nobody") : "calls";
    return BEFORE[role]?.includes(before) === true;
  });
}

const SIZES = [
  [1, 1],
  [16, 16],
  [48, 80],
  [100, 37],
  [640, 480],
  [31, 900],
  [9, 1800],
  [9, 1801],
  [1100, 900],
] as const;

/** With images among what others than the assistant say. */
export function illustrated(random: Random, { messages, ...rest }: Conversation): Conversation {
  return {
    ...rest,
    messages: messages.map((message) => {
      if (message.role === "assistant" || !random.chance(0.4)) return message;
      const [width, height] = random.pick(SIZES);
      const image = { type: "image", image: grayPng(width, height) } as const;
      const parts =
        typeof message.content === "string"
          ? [{ type: "text", text: message.content } as const]
          : message.content;
      return { ...message, content: parts.toSpliced(random.integer(0, parts.length), 0, image) };
    }),
  };
}

/** A whole PNG file, as a data URI. */
function grayPng(width: number, height: number): string {
  const chunk = (type: string, data: Buffer) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const ends = [Buffer.alloc(4), Buffer.alloc(4)] as const;
    ends[0].writeUInt32BE(data.length);
    ends[1].writeUInt32BE(crc32(body));
    return Buffer.concat([ends[0], body, ends[1]]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width);
  header.writeUInt32BE(height, 4);
  header[8] = 8;
  const signature = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
  const pixels = deflateSync(Buffer.alloc((width + 1) * height));
  const file = [signature, chunk("IHDR", header), chunk("IDAT", pixels), chunk("IEND", Buffer.alloc(0))];
  return `data:image/png;base64,${Buffer.concat(file).toString("base64")}`;
}

/** With the flags that a mode needs, and sometimes without. */
export function flagged(random: Random, { messages, ...rest }: Conversation, trainOn: TrainOn): Conversation {
  const flag = trainOn === "customized" ? 0.99 : 0.005;
  return {
    ...rest,
    messages: messages.map((message) =>
      random.chance(flag) ? { ...message, trainable: random.chance(0.5) } : message,
    ),
  };
}

/** An answer as it may really come: whole, cut off, or damaged. */
export function damaged(random: Random, answer: readonly number[], others: readonly number[]): number[] {
  const tokens = [...answer];
  const place = () => random.integer(0, tokens.length);
  switch (random.pick(["whole", "whole", "cut", "cut", "drop", "insert", "swap"] as const)) {
    case "whole":
      return tokens;
    case "cut":
      return tokens.slice(0, place());
    case "drop":
      return tokens.toSpliced(place(), random.integer(1, 4));
    case "insert":
      return tokens.toSpliced(place(), 0, random.pick(others));
    case "swap":
      return tokens.toSpliced(place(), 1, random.pick(others));
  }
}
