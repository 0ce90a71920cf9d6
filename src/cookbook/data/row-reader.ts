import type { ContentPart, Message, ToolCall, ToolDeclaration } from "../../renderers/index.js";
import { JsonNumber, type JsonObject, printPythonJson, readPythonJson } from "../../renderers/python-json.js";
import { closestName, describe, isRecord, subfield } from "../../wire/index.js";
import type { RowFormat, RowProblem } from "./conversation.js";

/** An object of a row, with the field names of its file. */
export type Fields = Readonly<Record<string, unknown>>;

/** Fields of a message besides its role, with their names in files and in code. */
const MESSAGE_KEYS = [
  "role",
  "content",
  "tool_calls",
  "toolCalls",
  "tool_call_id",
  "toolCallId",
  "unparsed_tool_calls",
  "unparsedToolCalls",
  "reasoning_content",
  "reasoning",
  "thinking",
  "name",
  "trainable",
  "weight",
];

/** Fields that change what a row trains, so that they must not be dropped silently. */
const REFUSED_KEYS: Readonly<Record<string, string>> = {
  function_call: "is OpenAI's old form: write it as tool_calls",
  audio: "cannot be trained on",
};

const PART_TYPES = "text, thinking, image or image_url";

/** Reads a whole row and collects all its problems, so that they are reported together. */
export class RowReader {
  readonly problems: RowProblem[] = [];
  /** The format that the row was read as. */
  format: RowFormat | undefined;

  /** Reads a text as one message of `role`, or a list of messages. */
  textOrMessages(value: unknown, field: string, role: string): readonly Message[] {
    if (typeof value === "string") return [{ role, content: value }];
    if (Array.isArray(value)) return this.messages(value, field);
    if (isAbsent(value)) this.problem(field, `${field} is missing`);
    else this.wrong(field, "text or a list of messages", value);
    return [];
  }

  messages(value: unknown, field: string): readonly Message[] {
    const list = this.listOrJson(value, field);
    if (list?.length === 0) this.problem(field, `${field} is empty`);
    return (list ?? []).map((item, index) => this.#message(item, `${field}[${index}]`));
  }

  #message(value: unknown, field: string): Message {
    const fields = this.record(value, field);
    if (fields === undefined) return { role: "", content: "" };
    this.#checkKeys(fields, field);
    const [callsKey, calls] = either(fields, "tool_calls", "toolCalls");
    const toolCalls = isAbsent(calls) ? undefined : this.toolCalls(calls, subfield(field, callsKey));
    const [, toolCallId] = this.#optionalText(fields, field, "tool_call_id", "toolCallId");
    const [, name] = this.#optionalText(fields, field, "name");
    const unparsed = this.#unparsedToolCalls(fields, field);
    const { trainable } = fields;
    if (!isAbsent(trainable) && typeof trainable !== "boolean") {
      this.wrong(subfield(field, "trainable"), "true or false", trainable);
    }
    const role = this.#role(fields["role"], subfield(field, "role"));
    const weight = this.weight(fields["weight"], subfield(field, "weight"), role);
    return {
      role,
      content: this.#contentOf(fields, field, (toolCalls ?? unparsed) !== undefined),
      ...(toolCalls && { toolCalls }),
      ...(unparsed && { unparsedToolCalls: unparsed }),
      ...(typeof trainable === "boolean" && { trainable }),
      ...(weight !== undefined && { weight }),
      ...(toolCallId !== undefined && { toolCallId }),
      ...(name !== undefined && { name }),
    };
  }

  #checkKeys(fields: Fields, field: string): void {
    for (const [key, value] of Object.entries(fields)) {
      if (isAbsent(value) || MESSAGE_KEYS.includes(key)) continue;
      const path = subfield(field, key);
      if (Object.hasOwn(REFUSED_KEYS, key)) this.problem(path, `${path} ${REFUSED_KEYS[key]}`);
      else {
        const meant = closestName(key, MESSAGE_KEYS);
        if (meant !== undefined) this.problem(path, `${path} is not known: did you mean ${meant}?`);
      }
    }
  }

  #role(value: unknown, field: string): string {
    if (isAbsent(value)) this.problem(field, `${field} is missing`);
    else if (typeof value !== "string" || value === "") this.wrong(field, "a text such as user", value);
    return String(value);
  }

  weight(given: unknown, field: string, role: string): Message["weight"] {
    if (isAbsent(given)) return undefined;
    const weight = given instanceof JsonNumber ? given.toJSON() : given;
    if (role !== "assistant") this.problem(field, `${field} is for messages of the assistant alone`);
    else if (weight === 0 || weight === 1) return weight;
    else this.wrong(field, "0 (not trained on) or 1", given);
    return undefined;
  }

  #contentOf(fields: Fields, field: string, mayBeAbsent: boolean): Message["content"] {
    const [, reasoning] = this.#optionalText(fields, field, "reasoning_content", "reasoning", "thinking");
    const { content: given } = fields;
    const path = subfield(field, "content");
    if (isAbsent(given) && !mayBeAbsent && !reasoning) this.problem(path, `${path} is missing`);
    const content = isAbsent(given) ? "" : this.#content(given, path);
    if (!reasoning) return content;
    const parts = typeof content === "string" ? textParts(content) : content;
    return [{ type: "thinking", thinking: reasoning }, ...parts];
  }

  #content(value: unknown, field: string): Message["content"] {
    if (typeof value === "string") return value;
    if (!Array.isArray(value)) {
      this.wrong(field, "text or a list of parts", value);
      return "";
    }
    return value.flatMap((part, index) => this.#part(part, `${field}[${index}]`) ?? []);
  }

  #part(value: unknown, field: string): ContentPart | undefined {
    const fields = this.record(value, field);
    if (fields === undefined) return undefined;
    const { type } = fields;
    switch (type) {
      case "text":
        return { type, text: this.text(fields, field, "text") };
      case "thinking":
        return { type, thinking: this.text(fields, field, "thinking") };
      case "image":
        return this.#image(fields["image"], subfield(field, "image"), fields["format"]);
      case "image_url": {
        const path = subfield(field, "image_url");
        const { image_url: given } = fields;
        const holder = isObject(given) ? this.record(given, path) : undefined;
        return holder === undefined
          ? this.#image(given, path)
          : this.#image(holder["url"], subfield(path, "url"));
      }
      default:
        this.wrong(subfield(field, "type"), PART_TYPES, type);
        return undefined;
    }
  }

  #image(image: unknown, field: string, format?: unknown): ContentPart | undefined {
    const isImage = image instanceof Uint8Array || (typeof image === "string" && image.startsWith("data:"));
    if (!isImage) {
      this.wrong(field, "a data: URI of a PNG or JPEG file, since nothing is downloaded", image);
      return undefined;
    }
    return { type: "image", image, ...((format === "png" || format === "jpeg") && { format }) };
  }

  toolCalls(value: unknown, field: string): readonly ToolCall[] | undefined {
    const calls = this.list(fromJsonText(value), field)?.map((item, index) =>
      this.#toolCall(item, `${field}[${index}]`),
    );
    // Tables write an empty list if there is no call.
    return calls?.length === 0 ? undefined : calls;
  }

  #toolCall(value: unknown, field: string): ToolCall {
    const fields = this.record(value, field) ?? {};
    const [, id] = this.#optionalText(fields, field, "id");
    const isNested = !isAbsent(fields["function"]);
    const path = isNested ? subfield(field, "function") : field;
    const called = isNested ? (this.record(fields["function"], path) ?? {}) : fields;
    return {
      ...(id !== undefined && { id }),
      name: this.text(called, path, "name"),
      arguments: this.#arguments(called["arguments"], subfield(path, "arguments")),
    };
  }

  /** A text stays unchanged, spaces included: the model wrote it like that. */
  #arguments(value: unknown, field: string): string {
    if (typeof value === "string") return value;
    if (isObject(value)) return printPythonJson(value);
    if (isAbsent(value)) this.problem(field, `${field} is missing`);
    else this.wrong(field, "a JSON object or the text of one", value);
    return "";
  }

  #unparsedToolCalls(fields: Fields, field: string): Message["unparsedToolCalls"] {
    const [key, value] = either(fields, "unparsed_tool_calls", "unparsedToolCalls");
    if (isAbsent(value)) return undefined;
    const path = subfield(field, key);
    return this.list(value, path)?.map((item, index) => {
      const call = this.record(item, `${path}[${index}]`) ?? {};
      const [rawKey] = either(call, "raw_text", "rawText");
      return {
        rawText: this.text(call, `${path}[${index}]`, rawKey),
        error: this.text(call, `${path}[${index}]`, "error"),
      };
    });
  }

  /** The tools of a row; `functions` is what OpenAI's files called them first. */
  tools(fields: Fields): readonly ToolDeclaration[] | undefined {
    const [key, value] = either(fields, "tools", "functions");
    if (isAbsent(value) || value === "") return undefined;
    const tools = this.list(fromJsonText(value), key)?.map((item, index) =>
      this.#tool(item, `${key}[${index}]`),
    );
    return tools?.length === 0 ? undefined : tools;
  }

  #tool(value: unknown, field: string): ToolDeclaration {
    const outer = this.record(value, field) ?? {};
    const isNested = !isAbsent(outer["function"]);
    const path = isNested ? subfield(field, "function") : field;
    const fields = isNested ? (this.record(outer["function"], path) ?? {}) : outer;
    const [, description = ""] = this.#optionalText(fields, path, "description");
    const parameters = fromJsonText(fields["parameters"]);
    return {
      name: this.text(fields, path, "name"),
      description,
      parameters: this.#schema(parameters, subfield(path, "parameters")),
    };
  }

  #schema(value: unknown, field: string): ToolDeclaration["parameters"] {
    if (isObject(value)) return value;
    if (!isAbsent(value)) this.wrong(field, "an object", value);
    return {};
  }

  text(fields: Fields, field: string, key: string): string {
    const value = fields[key];
    const path = subfield(field, key);
    if (typeof value === "string") return value;
    if (isAbsent(value)) this.problem(path, `${path} is missing`);
    else this.wrong(path, "text", value);
    return "";
  }

  /** The first of these keys that exists. */
  #optionalText(fields: Fields, field: string, ...keys: [string, ...string[]]): [string, string | undefined] {
    const [key, value] = either(fields, ...keys);
    if (isAbsent(value)) return [key, undefined];
    return [key, this.text(fields, field, key)];
  }

  /** A list, or its JSON text. */
  listOrJson(value: unknown, field: string): readonly unknown[] | undefined {
    const read = fromJsonText(value);
    if (typeof read !== "string" || !/^\s*\[\s*\{\s*'/.test(read)) return this.list(read, field);
    this.problem(field, `${field} is Python's text of a list and not JSON: write it with json.dumps`);
    return undefined;
  }

  list(value: unknown, field: string): readonly unknown[] | undefined {
    if (Array.isArray(value)) return value;
    this.wrong(field, "a list", value);
    return undefined;
  }

  record(value: unknown, field: string): Fields | undefined {
    if (isObject(value)) return value instanceof Map ? Object.fromEntries(value) : (value as Fields);
    if (field !== "") this.wrong(field, "an object", value);
    else if (!Array.isArray(value)) this.problem("", `the row must be a JSON object, got ${shown(value)}`);
    else this.problem("", "the row must be a JSON object, got a list: a file holds one row a line");
    return undefined;
  }

  wrong(field: string, expected: string, given: unknown): void {
    this.problem(field, `${field} must be ${expected}, got ${shown(given)}`);
  }

  /** Says which fields the row has instead. */
  missing(field: string, message: string, fields: Fields): void {
    const names = Object.keys(fields);
    const found = names.length === 0 ? "is empty" : `has ${names.slice(0, 10).join(", ")}`;
    this.problem(field, `${message}: the row ${found}`);
  }

  problem(field: string, message: string): void {
    this.problems.push({ field, message });
  }
}

function isObject(value: unknown): value is Fields | JsonObject {
  return isRecord(value) && !(value instanceof JsonNumber) && !ArrayBuffer.isView(value);
}

function shown(value: unknown): string {
  if (value instanceof JsonNumber) return value.text;
  return isObject(value) ? "an object" : describe(value);
}

/** Tables have a null in every column that a row does not use. */
export function isAbsent(value: unknown): value is null | undefined {
  return value === null || value === undefined;
}

export function either(fields: Fields, ...keys: [string, ...string[]]): readonly [string, unknown] {
  const key = keys.find((name) => !isAbsent(fields[name])) ?? keys[0];
  return [key, fields[key]];
}

function textParts(text: string): readonly ContentPart[] {
  return text === "" ? [] : [{ type: "text", text }];
}

/** Tables that cannot hold objects hold them as JSON text. */
export function fromJsonText(value: unknown): unknown {
  if (typeof value !== "string") return value;
  try {
    return readPythonJson(value);
  } catch {
    return value;
  }
}
