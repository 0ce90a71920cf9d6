import type { AnswerToken, AnswerUsage } from "../../renderers/answer-events.js";
import type { AnswerPiece } from "../../renderers/answer-reader.js";
import type { ToolCall } from "../../renderers/messages.js";
import type { StopReason } from "../../wire/index.js";
import type { JsonFields } from "../param-error.js";
import { itemId, sealedThoughts } from "./input.js";
import type { ResponseItem } from "./store.js";
import { type ClientTools, customInput } from "./tools.js";

/** Fields of a response besides the sampled text. */
export interface ResponseHead {
  /** Suffix that the ids of the response and of its items share. */
  readonly stem: string;
  readonly fields: JsonFields;
  readonly tools: ClientTools;
  /** Whether thoughts are also sent as `encrypted_content`. */
  readonly sealsThoughts: boolean;
  readonly logprobsOf: (tokens: readonly AnswerToken[]) => readonly object[];
}

type WholeResponse = JsonFields & { readonly id: string };

const PREFIXES = { text: "msg", reasoning: "rs", function: "fc", custom: "ctc" } as const;

/** An item that is being written. */
interface OpenItem {
  readonly type: "text" | "reasoning";
  readonly id: string;
  text: string;
  readonly logprobs: object[];
}

/** Writes a response as events and as one object. */
export class ResponseWriter {
  readonly #head: ResponseHead;
  readonly #usage: AnswerUsage;
  readonly #output: ResponseItem[] = [];
  #tokens: AnswerToken[] = [];
  #open: OpenItem | undefined;
  #sequence = 0;

  constructor(head: ResponseHead, usage: AnswerUsage) {
    this.#head = head;
    this.#usage = usage;
  }

  get output(): readonly ResponseItem[] {
    return this.#output;
  }

  /** Writes the first events; called again, it repeats that the response is in progress, for a client that waits. */
  begin(): object[] {
    const isNew = this.#sequence === 0;
    return [...(isNew ? [this.#state("created")] : []), this.#state("in_progress")];
  }

  /** Whether the first events were written. */
  get hasBegun(): boolean {
    return this.#sequence > 0;
  }

  push(piece: AnswerPiece | undefined, tokens: readonly AnswerToken[]): object[] {
    this.#tokens.push(...tokens);
    if (piece === undefined) return [];
    const logprobs = this.#head.logprobsOf(this.#tokens);
    this.#tokens = [];
    if (piece.type === "calls") return [...this.#close(), ...piece.calls.flatMap((call) => this.#call(call))];
    const opened = this.#open?.type === piece.type ? [] : [...this.#close(), ...this.#begin(piece.type)];
    const open = this.#open!;
    open.text += piece.text;
    if (piece.type === "text") {
      open.logprobs.push(...logprobs);
      const place = { ...this.#place(open.id), content_index: 0 };
      return [...opened, this.#event("output_text.delta", { ...place, delta: piece.text, logprobs })];
    }
    const place = { ...this.#place(open.id), summary_index: 0 };
    return [...opened, this.#event("reasoning_summary_text.delta", { ...place, delta: piece.text })];
  }

  /** Ends the last item; an answer without visible text becomes an empty message. */
  end(stopReason: StopReason): object[] {
    const status = stopReason === "length" ? "incomplete" : "completed";
    const closed = this.#close(status);
    if (this.#output.some(({ type }) => type !== "reasoning")) return closed;
    return [...closed, ...this.#begin("text"), ...this.#close(status)];
  }

  /** Writes the last event. */
  finished(stopReason: StopReason): { readonly response: WholeResponse } {
    return this.#state(stopReason === "length" ? "incomplete" : "completed");
  }

  failed(code: string, message: string): object {
    return this.#state("failed", { error: { code, message } });
  }

  #response(status: string, more: object): WholeResponse {
    const isOver = status !== "in_progress";
    const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = this.#usage;
    return {
      id: `resp_${this.#head.stem}`,
      object: "response",
      status,
      error: null,
      incomplete_details: status === "incomplete" ? { reason: "max_output_tokens" } : null,
      ...this.#head.fields,
      output: isOver ? this.#output : [],
      usage: isOver
        ? {
            input_tokens: promptTokens,
            input_tokens_details: { cached_tokens: cachedTokens, cache_write_tokens: 0 },
            output_tokens: completionTokens,
            output_tokens_details: { reasoning_tokens: reasoningTokens },
            total_tokens: promptTokens + completionTokens,
          }
        : null,
      ...more,
    };
  }

  #state(kind: "created" | "in_progress" | "completed" | "incomplete" | "failed", more: object = {}) {
    const response = this.#response(kind === "created" ? "in_progress" : kind, more);
    return { ...this.#event(kind, { response }), response };
  }

  #begin(type: "text" | "reasoning"): object[] {
    const id = itemId(PREFIXES[type], this.#head.stem, this.#output.length);
    this.#open = { type, id, text: "", logprobs: [] };
    const place = this.#place(id);
    if (type === "text") {
      const part = { type: "output_text", text: "", annotations: [], logprobs: [] };
      return [
        this.#added({ id, type: "message", status: "in_progress", role: "assistant", content: [] }),
        this.#event("content_part.added", { ...place, content_index: 0, part }),
      ];
    }
    return [
      this.#added({ id, type: "reasoning", summary: [] }),
      this.#event("reasoning_summary_part.added", {
        ...place,
        summary_index: 0,
        part: { type: "summary_text", text: "" },
      }),
    ];
  }

  #close(status = "completed"): object[] {
    const open = this.#open;
    this.#open = undefined;
    if (open === undefined) return [];
    const { id, text, logprobs } = open;
    const place = this.#place(id);
    if (open.type === "text") {
      const part = { type: "output_text", text, annotations: [], logprobs };
      const at = { ...place, content_index: 0 };
      return [
        this.#event("output_text.done", { ...at, text, logprobs }),
        this.#event("content_part.done", { ...at, part }),
        this.#done({ id, type: "message", status, role: "assistant", content: [part] }),
      ];
    }
    const part = { type: "summary_text", text };
    const at = { ...place, summary_index: 0 };
    const sealed = this.#head.sealsThoughts ? { encrypted_content: sealedThoughts(id, text) } : {};
    return [
      this.#event("reasoning_summary_text.done", { ...at, text }),
      this.#event("reasoning_summary_part.done", { ...at, part }),
      this.#done({ id, type: "reasoning", summary: [part], ...sealed }),
    ];
  }

  #call(call: Required<ToolCall>): object[] {
    const { type, name, namespace } = this.#head.tools.formOf(call.name);
    const id = itemId(PREFIXES[type], this.#head.stem, this.#output.length);
    const place = this.#place(id);
    const common = { id, call_id: call.id, name, ...(namespace !== undefined && { namespace }) };
    if (type === "custom") {
      const input = customInput(call);
      const item = { ...common, type: "custom_tool_call" };
      return [
        this.#added({ ...item, status: "in_progress", input: "" }),
        this.#event("custom_tool_call_input.delta", { ...place, delta: input }),
        this.#event("custom_tool_call_input.done", { ...place, input }),
        this.#done({ ...item, status: "completed", input }),
      ];
    }
    const { arguments: given } = call;
    const item = { ...common, type: "function_call" };
    return [
      this.#added({ ...item, status: "in_progress", arguments: "" }),
      this.#event("function_call_arguments.delta", { ...place, delta: given }),
      this.#event("function_call_arguments.done", { ...place, name, arguments: given }),
      this.#done({ ...item, status: "completed", arguments: given }),
    ];
  }

  #place(item: string): { readonly item_id: string; readonly output_index: number } {
    return { item_id: item, output_index: this.#output.length };
  }

  #added(item: ResponseItem): object {
    return this.#event("output_item.added", { output_index: this.#output.length, item });
  }

  #done(item: ResponseItem): object {
    const event = this.#event("output_item.done", { output_index: this.#output.length, item });
    this.#output.push(item);
    return event;
  }

  #event(kind: string, fields: object): object {
    const event = { type: `response.${kind}`, sequence_number: this.#sequence, ...fields };
    this.#sequence += 1;
    return event;
  }
}

/** The ids of the items of an answer, in the order in which `ResponseWriter` writes them. */
export function itemIdsOf({ stem, tools }: ResponseHead, pieces: readonly AnswerPiece[]): string[] {
  const prefixes: string[] = pieces.flatMap((piece) =>
    piece.type === "calls"
      ? piece.calls.map(({ name }) => PREFIXES[tools.formOf(name).type])
      : [PREFIXES[piece.type]],
  );
  if (pieces.every(({ type }) => type === "reasoning")) prefixes.push(PREFIXES.text);
  return prefixes.map((prefix, place) => itemId(prefix, stem, place));
}
