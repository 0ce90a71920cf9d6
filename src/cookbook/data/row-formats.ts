import type { Message, ToolCall } from "../../renderers/index.js";
import { isRecord } from "../../wire/index.js";
import type { Conversation, RowFormat } from "./conversation.js";
import type { RowShape } from "./read-row.js";
import { either, type Fields, fromJsonText, isAbsent, type RowReader } from "./row-reader.js";

/** How rows are read whose format or column names are not recognized. */
export interface RowNames {
  /** Format of the rows. Default: recognized for each row by its fields. */
  readonly format?: RowFormat | undefined;
  /** The column that holds a field of the format, by the name of that field: `{ prompt: "frage", completion: "antwort" }`. */
  readonly columns?: Readonly<Record<string, string>> | undefined;
}

type Keys = readonly [string, ...string[]];

const CONVERSATIONS: Keys = ["conversations", "conversation"];
const PROMPTS: Keys = ["prompt", "question", "query"];
const COMPLETIONS: Keys = ["completion", "answer", "response"];
const OUTPUTS: Keys = ["output", "response"];
const INPUTS: Keys = ["input", "context"];
const SYSTEMS: Keys = ["system", "system_prompt"];

/** Fields that columns may be named for. */
export const FIELD_NAMES: readonly string[] = [
  ...["messages", "conversations", "instruction", "input", "output", "history"],
  ...["prompt", "completion", "system", "tools"],
];

/** Reads conversations in any of our formats, or in the one that is given. */
export function conversationShape({ format, columns }: RowNames = {}): RowShape<Conversation> {
  return (row, reader) => {
    const fields = named(row, columns);
    const found = format ?? recognize(fields, reader);
    if (found === undefined) return { messages: [] };
    reader.format = found;
    const tools = reader.tools(fields);
    const messages = READERS[found](fields, reader);
    return { messages: withSystemOf(fields, messages, reader), ...(tools && { tools }) };
  };
}

/** Reads conversations, and questions without an answer. */
export function questionShape(names: RowNames = {}): RowShape<Conversation> {
  const readConversation = conversationShape(names);
  return (row, reader) => {
    const fields = named(row, names.columns);
    const isPrompt = (names.format ?? "prompt-completion") === "prompt-completion" && isUnanswered(fields);
    if (!isPrompt) return readConversation(row, reader);
    const [key, prompt] = either(fields, ...PROMPTS);
    return { messages: withSystemOf(fields, reader.textOrMessages(prompt, key, "user"), reader) };
  };
}

function isUnanswered(fields: Fields): boolean {
  const has = (keys: Keys) => keys.some((key) => !isAbsent(fields[key]));
  // An answer beside the prompt is what a grader compares with.
  return has(PROMPTS) && !has(["messages", ...CONVERSATIONS, "completion", "response"]);
}

/** A row under the names of its format; columns that the user named are all that it has. */
function named(row: Fields, columns: RowNames["columns"]): Fields {
  if (columns === undefined) return row;
  return Object.fromEntries(Object.entries(columns).map(([field, column]) => [field, row[column]]));
}

/** Fields that a row needs to be in a format: one of the names of each. */
const COMPLETE: Readonly<Record<RowFormat, readonly Keys[]>> = {
  messages: [["messages"]],
  sharegpt: [CONVERSATIONS],
  alpaca: [["instruction"], OUTPUTS],
  "prompt-completion": [PROMPTS, COMPLETIONS],
};

function recognize(fields: Fields, reader: RowReader): RowFormat | undefined {
  const has = (keys: Keys) => keys.some((key) => !isAbsent(fields[key]));
  const entries = Object.entries(COMPLETE) as [RowFormat, readonly Keys[]][];
  const complete = entries.filter(([, needed]) => needed.every(has)).map(([format]) => format);
  if (complete.length > 1) {
    const [first, second] = complete;
    const message = `the row can be read as ${complete.join(" and ")}: say which with format (--data-format ${first} or ${second})`;
    reader.problem("", message);
    return undefined;
  }
  const partial = () => entries.find(([, needed]) => needed.some(has))?.[0];
  const format = complete[0] ?? (isInputOutput(fields) ? "prompt-completion" : partial());
  if (format !== undefined) return format;
  reader.missing("messages", "messages is missing, and so are prompt and completion", fields);
  return undefined;
}

/** Fields that are a prompt and its completion unless the row has an instruction. */
function isInputOutput({ instruction, input, output }: Fields): boolean {
  return isAbsent(instruction) && !isAbsent(input) && !isAbsent(output);
}

type MessagesReader = (fields: Fields, reader: RowReader) => readonly Message[];

const READERS: Readonly<Record<RowFormat, MessagesReader>> = {
  messages: (fields, reader) => messagesOrTurns(fields["messages"], "messages", reader),
  sharegpt: (fields, reader) => {
    const [key, value] = either(fields, ...CONVERSATIONS);
    return messagesOrTurns(value, key, reader);
  },
  alpaca: readAlpaca,
  "prompt-completion": (fields, reader) => {
    const [promptKey, prompt] = either(fields, ...PROMPTS, "input");
    const [key, completion] = either(fields, ...COMPLETIONS, "output");
    return [
      ...reader.textOrMessages(prompt, promptKey, "user"),
      ...reader.textOrMessages(completion, key, "assistant"),
    ];
  },
};

/** Either field may hold messages of OpenAI's form or turns of ShareGPT's: their own fields tell them apart. */
function messagesOrTurns(value: unknown, field: string, reader: RowReader): readonly Message[] {
  const [first]: readonly unknown[] = arrayOf(fromJsonText(value));
  const names = first instanceof Map ? Object.fromEntries(first) : isRecord(first) ? first : {};
  return ("from" in names || "value" in names) && !("role" in names)
    ? readTurns(value, field, reader)
    : reader.messages(value, field);
}

const arrayOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** Who speaks in a turn, by the names that ShareGPT's files have. */
const SPEAKERS: Readonly<Record<string, string>> = {
  human: "user",
  gpt: "assistant",
  chatgpt: "assistant",
  bing: "assistant",
  bard: "assistant",
  model: "assistant",
  observation: "tool",
  function_response: "tool",
  function_call: "assistant",
};

function readTurns(value: unknown, field: string, reader: RowReader): readonly Message[] {
  return (reader.listOrJson(value, field) ?? []).flatMap((item, index) => {
    const path = `${field}[${index}]`;
    const turn = reader.record(item, path);
    if (turn === undefined) return [];
    const from = reader.text(turn, path, "from");
    const role = Object.hasOwn(SPEAKERS, from) ? SPEAKERS[from]! : from;
    const content = reader.text(turn, path, "value");
    const weight = reader.weight(turn["weight"], `${path}.weight`, role);
    if (from === "function_call") {
      const toolCalls = readCalls(content, `${path}.value`, reader);
      return [{ role, content: "", toolCalls, ...(weight !== undefined && { weight }) }];
    }
    return [{ role, content, ...(weight !== undefined && { weight }) }];
  });
}

/** A turn that calls tools has as its value the JSON of a call, or of a list of calls. */
function readCalls(text: string, field: string, reader: RowReader): readonly ToolCall[] {
  const calls = fromJsonText(text);
  if (typeof calls === "string") {
    reader.wrong(field, "the JSON of a tool call", calls);
    return [];
  }
  return reader.toolCalls(Array.isArray(calls) ? calls : [calls], field) ?? [];
}

/** An instruction with an optional input behind it, its output, and the exchanges before them. */
function readAlpaca(fields: Fields, reader: RowReader): readonly Message[] {
  const instruction = reader.text(fields, "", "instruction");
  const [inputKey, given] = either(fields, ...INPUTS);
  const input = isAbsent(given) ? "" : reader.text(fields, "", inputKey);
  const [outputKey] = either(fields, ...OUTPUTS);
  const history = isAbsent(fields["history"]) ? [] : (reader.listOrJson(fields["history"], "history") ?? []);
  const before = history.flatMap((pair, index): readonly Message[] => {
    const [asked, answered, more] = arrayOf(pair);
    if (typeof asked === "string" && typeof answered === "string" && more === undefined)
      return [
        { role: "user", content: asked },
        { role: "assistant", content: answered },
      ];
    reader.wrong(`history[${index}]`, "a list of an instruction and its answer", pair);
    return [];
  });
  return [
    ...before,
    { role: "user", content: input === "" ? instruction : `${instruction}\n${input}` },
    { role: "assistant", content: reader.text(fields, "", outputKey) },
  ];
}

/** Some files keep the system message in a field of its own. */
function withSystemOf(fields: Fields, messages: readonly Message[], reader: RowReader): readonly Message[] {
  const [key, system] = either(fields, ...SYSTEMS);
  if (isAbsent(system) || system === "" || messages[0]?.role === "system") return messages;
  return [{ role: "system", content: reader.text(fields, "", key) }, ...messages];
}
