import type { ConversationApi } from "../../chat-api/index.js";

type Fields = Readonly<Record<string, unknown>>;

/** Puts a streamed answer together: the body that the service would have sent without streaming. */
export interface StreamedBody {
  /** Takes an event; true when the answer is complete. */
  push(event: Fields): boolean;
  body(): Fields;
}

/** Puts the streamed answers of an API together. */
export function streamedBody(api: ConversationApi): StreamedBody {
  switch (api) {
    case "chat":
      return new ChatBody();
    case "messages":
      return new MessageBody();
    case "responses":
      return new ResponseBody();
    default:
      return api satisfies never;
  }
}

/** Maximum number of calls, choices or blocks, since their indexes come from the service. */
const MAX_PARTS = 1024;

interface Choice {
  readonly index: number;
  readonly texts: string[];
  readonly thoughts: string[];
  readonly calls: { id: unknown; name: string; readonly given: string[] }[];
  finish: unknown;
}

/** Chunks of chat completions. The last one before `[DONE]` may have only the usage. */
class ChatBody implements StreamedBody {
  readonly #choices: Choice[] = [];
  #model: unknown;

  push({ choices, model }: Fields): boolean {
    this.#model ??= model;
    for (const given of fieldsIn(choices)) {
      const { delta, finish_reason: finish } = given;
      const choice = this.#choice(numberOf(given["index"]));
      const said = isFields(delta) ? delta : {};
      const thought = said["reasoning_content"] ?? said["reasoning"];
      if (typeof said["content"] === "string") choice.texts.push(said["content"]);
      if (typeof thought === "string") choice.thoughts.push(thought);
      for (const call of fieldsIn(said["tool_calls"])) addCall(choice, call);
      choice.finish = finish ?? choice.finish;
    }
    return false;
  }

  body(): Fields {
    return {
      model: this.#model,
      choices: this.#choices.filter(Boolean).map(({ index, texts, thoughts, calls, finish }) => ({
        index,
        message: {
          content: texts.join(""),
          reasoning_content: thoughts.join(""),
          tool_calls: calls.filter(Boolean).map(({ id, name, given }) => ({
            id,
            function: { name, arguments: given.join("") },
          })),
        },
        finish_reason: finish,
      })),
    };
  }

  #choice(index: number): Choice {
    this.#choices[index] ??= { index, texts: [], thoughts: [], calls: [], finish: undefined };
    return this.#choices[index];
  }
}

function addCall({ calls }: Choice, { index, id, function: called }: Fields): void {
  // Some services leave out the index and send each call whole.
  const isNew = index === undefined && id !== undefined;
  const last = Math.max(0, calls.length - (isNew ? 0 : 1));
  const place = index === undefined ? last : numberOf(index);
  calls[place] ??= { id, name: "", given: [] };
  const call = calls[place];
  const { name, arguments: given } = isFields(called) ? called : {};
  if (typeof name === "string") call.name += name;
  if (typeof given === "string") call.given.push(given);
}

interface Block {
  readonly begun: Fields;
  readonly texts: string[];
  signature: string;
}

/** Events of Anthropic's messages. */
class MessageBody implements StreamedBody {
  readonly #blocks: Block[] = [];
  #message: Fields = {};
  #stopReason: unknown;

  push({ type, message, index, content_block: block, delta }: Fields): boolean {
    if (type === "message_start" && isFields(message)) this.#message = message;
    if (type === "content_block_start" && isFields(block))
      this.#blocks[numberOf(index)] = { begun: block, texts: [], signature: "" };
    const change = isFields(delta) ? delta : {};
    if (type === "message_delta") this.#stopReason = change["stop_reason"] ?? this.#stopReason;
    const open = this.#blocks[numberOf(index)];
    if (type === "content_block_delta" && open !== undefined) {
      const text = change["text"] ?? change["thinking"] ?? change["partial_json"];
      if (typeof text === "string") open.texts.push(text);
      if (typeof change["signature"] === "string") open.signature += change["signature"];
    }
    return type === "message_stop";
  }

  body(): Fields {
    const content = this.#blocks.filter(Boolean).map(({ begun, texts, signature }) => {
      const text = texts.join("");
      switch (begun["type"]) {
        case "text":
          return { ...begun, text: `${String(begun["text"] ?? "")}${text}` };
        case "thinking":
          return { ...begun, thinking: `${String(begun["thinking"] ?? "")}${text}`, signature };
        case "tool_use":
          return { ...begun, input: text === "" ? (begun["input"] ?? {}) : JSON.parse(text) };
        default:
          return begun;
      }
    });
    return { ...this.#message, content, stop_reason: this.#stopReason };
  }
}

/** Events of the Responses API; the last one holds the whole response. */
class ResponseBody implements StreamedBody {
  #response: Fields = {};

  push({ type, response }: Fields): boolean {
    const isLast = type === "response.completed" || type === "response.incomplete";
    if (isLast && isFields(response)) this.#response = response;
    return isLast;
  }

  body(): Fields {
    return this.#response;
  }
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function fieldsIn(value: unknown): readonly Fields[] {
  return Array.isArray(value) ? value.filter(isFields) : [];
}

function numberOf(value: unknown): number {
  return Number.isInteger(value) && Number(value) >= 0 && Number(value) < MAX_PARTS ? Number(value) : 0;
}
