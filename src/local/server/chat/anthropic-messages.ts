import { randomUUID } from "node:crypto";
import type { AnswerPiece } from "../../../renderers/answer-reader.js";
import { firstOf } from "../../../renderers/stream-parser.js";
import { readJsonObject } from "../http/body.js";
import type { App } from "../http/route.js";
import { anthropicError, inAnthropicWords } from "./anthropic-errors.js";
import { countSchema, messagesSchema, refuseLeftOut, toChatRequest } from "./anthropic-request.js";
import { type ChoiceEvent, choiceEvents } from "./chat-choices.js";
import { type CompletionServices, prepareChat, writeChat } from "./chat-completions.js";
import type { ChatRequest } from "./chat-request.js";
import { type EventWords, eventStream } from "./event-stream.js";
import { findModel } from "./models.js";
import { OpenAiError } from "./openai-errors.js";
import { checkBody } from "./openai-request.js";
import { sampleEvents } from "./sampled-tokens.js";
import { Usage } from "./usage.js";

type ChoiceEvents = AsyncGenerator<ChoiceEvent, void, undefined>;

/** What an answer is made with. */
interface Answer {
  readonly id: string;
  readonly model: string;
  readonly usage: Usage;
  /** The caller's stop sequence that tokens end with, where one does. */
  readonly stopSequenceIn: (tokens: readonly number[]) => string | undefined;
}

/** How an answer ended. */
interface Ending {
  readonly stop_reason: "end_turn" | "max_tokens" | "stop_sequence" | "tool_use";
  readonly stop_sequence: string | null;
}

const WORDS: EventWords = {
  event: (value) => named((value as { readonly type: string }).type, value),
  error: (error) => named("error", anthropicError(error)),
  end: "",
};

/** The Anthropic-compatible door: messages in the model's own format, and how many tokens they are. */
export function addAnthropicRoutes(app: App, services: CompletionServices): void {
  const { reader, textModelOf } = services;

  app.post("/anthropic/v1/messages", async (call) => {
    const { value: body } = await readJsonObject(call.req.raw, reader);
    refuseLeftOut(body);
    const request = checkBody(body, messagesSchema);
    const identity = call.get("identity");
    const model = findModel(services, identity, request.model);
    const text = await textModelOf(model.info);
    const prepared = withThinking(toChatRequest(request), (chat) => prepareChat(chat, text));
    const gone = new AbortController();
    const signal = AbortSignal.any([call.req.raw.signal, gone.signal]);
    const isLive = request.stream === true;
    const usage = new Usage();
    usage.promptTokens = prepared.work.prompt.length;
    const samples = sampleEvents(services, { identity, model, works: [prepared.work], isLive, signal });
    const events = choiceEvents(samples, prepared, usage);
    const answer: Answer = {
      id: `msg_${randomUUID().replaceAll("-", "")}`,
      model: request.model,
      usage,
      stopSequenceIn: (tokens) => firstOf(request.stop_sequences ?? [], text.tokenizer.decode(tokens))?.sign,
    };
    if (isLive) return eventStream(messageEvents(events, answer), gone, WORDS);
    return call.json(await wholeMessage(events, answer));
  });

  app.post("/anthropic/v1/messages/count_tokens", async (call) => {
    const { value: body } = await readJsonObject(call.req.raw, reader);
    refuseLeftOut(body);
    const request = checkBody(body, countSchema);
    const { info } = findModel(services, call.get("identity"), request.model);
    const text = await textModelOf(info);
    const { prompt } = withThinking(toChatRequest(request), (chat) => writeChat(chat, text));
    return call.json({ input_tokens: prompt.length });
  });
}

/** A model without modes of thinking does as it always does, also for those who want no thoughts. */
function withThinking<T>(request: ChatRequest, action: (request: ChatRequest) => T): T {
  return inAnthropicWords(() => {
    try {
      return action(request);
    } catch (error) {
      const wantsNone = request.chat_template_kwargs?.enable_thinking === false;
      const param = error instanceof OpenAiError ? error.param : undefined;
      if (!wantsNone || param !== "chat_template_kwargs.enable_thinking") throw error;
      return action({ ...request, chat_template_kwargs: undefined });
    }
  });
}

/** A message in events: blocks begin, grow and end one after the other. */
async function* messageEvents(events: ChoiceEvents, answer: Answer): AsyncGenerator<object, void, undefined> {
  const { id, model, usage } = answer;
  let index = -1;
  let open: AnswerPiece["type"] | undefined;
  let hasBegun = false;
  const close = () => {
    if (open === undefined) return [];
    open = undefined;
    return [{ type: "content_block_stop", index }];
  };
  const begin = (block: object) => {
    const closed = close();
    index += 1;
    return [...closed, { type: "content_block_start", index, content_block: block }];
  };
  const delta = (change: object) => ({ type: "content_block_delta", index, delta: change });
  const ending = new EndingReader(answer);
  for await (const event of events) {
    // Not before the first token: until then a failure has a status of its own.
    if (!hasBegun) {
      const message = { id, type: "message", role: "assistant", model, content: [] };
      yield {
        type: "message_start",
        message: { ...message, stop_reason: null, stop_sequence: null, usage: usageOf(usage) },
      };
      yield { type: "ping" };
      hasBegun = true;
    }
    ending.read(event);
    const { piece } = event;
    if (piece === undefined) continue;
    if (piece.type === "calls") {
      for (const { id: callId, name, arguments: input } of piece.calls) {
        yield* begin({ type: "tool_use", id: callId, name, input: {} });
        open = "calls";
        yield delta({ type: "input_json_delta", partial_json: input });
      }
      continue;
    }
    if (open !== piece.type) yield* begin(emptyBlock(piece.type));
    open = piece.type;
    yield delta(
      piece.type === "text"
        ? { type: "text_delta", text: piece.text }
        : { type: "thinking_delta", thinking: piece.text },
    );
  }
  yield* close();
  yield { type: "message_delta", delta: ending.result, usage: usageOf(usage) };
  yield { type: "message_stop" };
}

async function wholeMessage(events: ChoiceEvents, answer: Answer): Promise<object> {
  const { id, model, usage } = answer;
  const ending = new EndingReader(answer);
  const pieces: AnswerPiece[] = [];
  for await (const event of events) {
    ending.read(event);
    if (event.piece !== undefined) pieces.push(event.piece);
  }
  const message = { id, type: "message", role: "assistant", model, content: blocksOf(pieces) };
  return { ...message, ...ending.result, usage: usageOf(usage) };
}

function emptyBlock(type: "text" | "reasoning"): object {
  return type === "text" ? { type: "text", text: "" } : { type: "thinking", thinking: "", signature: "" };
}

function blocksOf(pieces: readonly AnswerPiece[]): object[] {
  const runs: AnswerPiece[] = [];
  for (const piece of pieces) {
    const last = runs.at(-1);
    if (piece.type === "calls" || last?.type !== piece.type) runs.push(piece);
    else runs[runs.length - 1] = { ...piece, text: last.text + piece.text };
  }
  return runs.flatMap((run): object[] => {
    switch (run.type) {
      case "text":
        return [{ ...emptyBlock("text"), text: run.text }];
      case "reasoning":
        return [{ ...emptyBlock("reasoning"), thinking: run.text }];
      case "calls":
        return run.calls.map(({ id, name, arguments: input }) => ({
          type: "tool_use",
          id,
          name,
          input: JSON.parse(input) as unknown,
        }));
      default:
        return run satisfies never;
    }
  });
}

/** Finds out from the events of an answer how it ended. */
class EndingReader {
  readonly #answer: Answer;
  readonly #tokens: number[] = [];
  result: Ending = { stop_reason: "end_turn", stop_sequence: null };

  constructor(answer: Answer) {
    this.#answer = answer;
  }

  read({ places, finishReason }: ChoiceEvent): void {
    for (const { scored } of places) this.#tokens.push(scored[0]);
    if (finishReason !== undefined) this.result = this.#endingOf(finishReason);
  }

  #endingOf(finishReason: string): Ending {
    if (finishReason === "tool_calls") return { stop_reason: "tool_use", stop_sequence: null };
    if (finishReason === "length") return { stop_reason: "max_tokens", stop_sequence: null };
    const found = this.#answer.stopSequenceIn(this.#tokens);
    return found === undefined
      ? { stop_reason: "end_turn", stop_sequence: null }
      : { stop_reason: "stop_sequence", stop_sequence: found };
  }
}

function usageOf({ promptTokens, completionTokens }: Usage): object {
  return {
    input_tokens: promptTokens,
    output_tokens: completionTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
  };
}

function named(name: string, value: object): string {
  return `event: ${name}\ndata: ${JSON.stringify(value)}\n\n`;
}
