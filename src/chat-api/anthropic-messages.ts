import type { Context, Env } from "hono";
import type { ZodType } from "zod";
import type { AnswerToken, AnswerUsage, WholeAnswer } from "../renderers/answer-events.js";
import type { AnswerPiece } from "../renderers/answer-reader.js";
import { firstOf } from "../tokenizers/held-text.js";
import { randomUuid } from "../transport/ids.js";
import { anthropicError } from "./anthropic-errors.js";
import { withoutAnthropicExtras } from "./anthropic-left-out.js";
import {
  anthropicConversation,
  anthropicParamNames,
  type ConversationRequest,
  countSchema,
  messagesSchema,
} from "./anthropic-request.js";
import type { ChatHost } from "./chat-host.js";
import { eventStream, namedEvent, type StreamedAnswer } from "./event-stream.js";
import { refuseOf } from "./lenience.js";
import { openTurn, TurnAnswers } from "./open-turn.js";
import { checkBody } from "./param-error.js";

/** State needed to write an answer. */
interface MessageHead {
  /** Suffix of the ids of the message and of its thinking blocks. */
  readonly stem: string;
  readonly model: string;
  /** The caller's stop sequence that the tokens end with, if any. */
  readonly stopSequenceIn: (tokens: readonly number[]) => string | undefined;
}

/** The stop reason of an answer, in Anthropic's words. */
interface Ending {
  readonly stop_reason: "end_turn" | "max_tokens" | "stop_sequence" | "tool_use";
  readonly stop_sequence: string | null;
}

/** Routes of Anthropic's API: messages in the model's own format, and token counts. */
export function addAnthropicRoutes<E extends Env>(host: ChatHost<E>): void {
  const { app } = host;

  // Some clients first ask whether a server is there.
  for (const path of ["/anthropic", "/anthropic/"]) app.get(path, (call) => call.json({ status: "ok" }));

  async function open<T extends ConversationRequest>(call: Context<E>, schema: ZodType<T>) {
    const refuse = refuseOf(host, call);
    const request = checkBody(withoutAnthropicExtras(await host.readJson(call), refuse), schema);
    const model = await host.models(call).find(request.model);
    const names = anthropicParamNames(request);
    const read = () => anthropicConversation(request, model.formats, refuse);
    const turn = openTurn(model, read, { names, refuse });
    return { request, model, turn };
  }

  app.post("/anthropic/v1/messages", async (call) => {
    const { request, model, turn } = await open(call, messagesSchema);
    const gone = new AbortController();
    const isLive = request.stream === true;
    const stem = randomUuid().replaceAll("-", "");
    const settings = {
      maxTokens: request.max_tokens,
      temperature: request.temperature ?? undefined,
      topP: request.top_p ?? undefined,
      topK: request.top_k || undefined,
      isLive,
      signal: AbortSignal.any([call.req.raw.signal, gone.signal]),
    };
    const signatures = (count: number) =>
      Array.from({ length: count }, (_, index) => signatureOf(stem, index));
    const answers = new TurnAnswers(turn, settings, (pieces) =>
      signatures(pieces.filter(({ type }) => type === "reasoning").length),
    );
    const message: MessageHead = {
      stem,
      model: request.model,
      stopSequenceIn: (tokens) => firstOf(request.stop_sequences ?? [], model.tokenizer.decode(tokens))?.sign,
    };
    if (isLive) return eventStream(host, messageStream(answers, message), gone);
    return call.json(await wholeMessage(answers, message));
  });

  app.post("/anthropic/v1/messages/count_tokens", async (call) => {
    const { turn } = await open(call, countSchema);
    return call.json({ input_tokens: turn.prepared.prompt.length });
  });
}

/** Writes a message as events: blocks begin, grow and end one after the other. */
function messageStream(answers: TurnAnswers, answer: MessageHead): StreamedAnswer {
  const { stem, model } = answer;
  const { usage } = answers;
  let hasBegun = false;
  // Waits for the first token or a long silence: until then, a failure can still have its own status.
  const begin = () => {
    if (hasBegun) return [{ type: "ping" }];
    hasBegun = true;
    const message = { id: `msg_${stem}`, type: "message", role: "assistant", model, content: [] };
    const ending = { stop_reason: null, stop_sequence: null };
    return [
      { type: "message_start", message: { ...message, ...ending, usage: usageOf(usage) } },
      { type: "ping" },
    ];
  };
  async function* events(): AsyncGenerator<object, void, undefined> {
    const tokens: AnswerToken[] = [];
    const blocks = new Blocks(stem);
    let ending: Ending | undefined;
    for await (const { piece, stopReason, hasCalls = false, tokens: more } of answers) {
      if (!hasBegun) yield* begin();
      tokens.push(...more);
      if (stopReason !== undefined) ending = endingOf(answer, { tokens, stopReason, hasCalls });
      if (piece !== undefined) yield* blocks.push(piece);
    }
    yield* blocks.end();
    yield { type: "message_delta", delta: ending, usage: usageOf(usage) };
    yield { type: "message_stop" };
  }
  return {
    events: events(),
    write: namedEvent,
    waiting: () => begin().map(namedEvent).join(""),
    failed: (error) => namedEvent(anthropicError(error)),
    end: "",
  };
}

/** Writes the blocks of a streamed message. */
class Blocks {
  readonly #stem: string;
  #index = -1;
  #thoughts = 0;
  #open: AnswerPiece["type"] | undefined;

  constructor(stem: string) {
    this.#stem = stem;
  }

  push(piece: AnswerPiece): object[] {
    if (piece.type === "calls")
      return piece.calls.flatMap(({ id, name, arguments: input }) => [
        ...this.#begin("calls", { type: "tool_use", id, name, input: {} }),
        this.#delta({ type: "input_json_delta", partial_json: input }),
      ]);
    const begun = this.#open === piece.type ? [] : this.#begin(piece.type, emptyBlock(piece.type));
    const { text } = piece;
    const isText = piece.type === "text";
    return [
      ...begun,
      this.#delta(isText ? { type: "text_delta", text } : { type: "thinking_delta", thinking: text }),
    ];
  }

  end(): object[] {
    const open = this.#open;
    this.#open = undefined;
    if (open === undefined) return [];
    const stop = { type: "content_block_stop", index: this.#index };
    if (open !== "reasoning") return [stop];
    const signature = signatureOf(this.#stem, this.#thoughts);
    this.#thoughts += 1;
    return [this.#delta({ type: "signature_delta", signature }), stop];
  }

  #begin(type: AnswerPiece["type"], block: object): object[] {
    const ended = this.end();
    this.#index += 1;
    this.#open = type;
    return [...ended, { type: "content_block_start", index: this.#index, content_block: block }];
  }

  #delta(change: object): object {
    return { type: "content_block_delta", index: this.#index, delta: change };
  }
}

async function wholeMessage(answers: TurnAnswers, answer: MessageHead): Promise<object> {
  const { stem, model } = answer;
  const [whole] = await answers.whole();
  let thoughts = 0;
  const content = whole!.pieces.flatMap((piece) => blocksOf(piece, () => signatureOf(stem, thoughts++)));
  const message = { id: `msg_${stem}`, type: "message", role: "assistant", model, content };
  return { ...message, ...endingOf(answer, whole!), usage: usageOf(answers.usage) };
}

function emptyBlock(type: "text" | "reasoning"): object {
  return type === "text" ? { type: "text", text: "" } : { type: "thinking", thinking: "", signature: "" };
}

/** An agent sends a thought back with its signature, which identifies the answer. */
function signatureOf(stem: string, index: number): string {
  return `sig_${stem}${index}`;
}

function blocksOf(piece: AnswerPiece, newSignature: () => string): object[] {
  switch (piece.type) {
    case "text":
      return [{ ...emptyBlock("text"), text: piece.text }];
    case "reasoning":
      return [{ type: "thinking", thinking: piece.text, signature: newSignature() }];
    case "calls":
      return piece.calls.map(({ id, name, arguments: input }) => ({
        type: "tool_use",
        id,
        name,
        input: JSON.parse(input) as unknown,
      }));
    default:
      return piece satisfies never;
  }
}

function endingOf(
  { stopSequenceIn }: MessageHead,
  { tokens, stopReason, hasCalls }: Pick<WholeAnswer, "tokens" | "stopReason" | "hasCalls">,
): Ending {
  if (stopReason === "length") return { stop_reason: "max_tokens", stop_sequence: null };
  if (hasCalls) return { stop_reason: "tool_use", stop_sequence: null };
  const found = stopSequenceIn(tokens.map(({ scored: [token] }) => token));
  return found === undefined
    ? { stop_reason: "end_turn", stop_sequence: null }
    : { stop_reason: "stop_sequence", stop_sequence: found };
}

function usageOf({ promptTokens, completionTokens }: AnswerUsage): object {
  return {
    input_tokens: promptTokens,
    output_tokens: completionTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
  };
}
