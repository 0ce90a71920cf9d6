import { randomUUID } from "node:crypto";
import { TinkerError } from "../../../errors.js";
import { AnswerReader } from "../../../renderers/answer-reader.js";
import { type Message, textOf } from "../../../renderers/messages.js";
import type { Renderer } from "../../../renderers/renderer.js";
import { StreamParser } from "../../../renderers/stream-parser.js";
import type { Tokenizer } from "../../../tokenizers/index.js";
import type { Clock } from "../../../transport/clock.js";
import type { JsonConstraint } from "../../engine/engine.js";
import type { BodyReader } from "../http/body.js";
import type { App } from "../http/route.js";
import { chatChunks, choiceEvents, type PreparedChat, wholeChoices } from "./chat-choices.js";
import { type ChatRequest, chatSchema, readConstraint, readMessages, readTools } from "./chat-request.js";
import { eventStream } from "./event-stream.js";
import { chatLogprobs, type ScoredPlace } from "./logprobs.js";
import { findModel, type ModelServices } from "./models.js";
import { invalidValue, OPENAI_PATHS, unsupported } from "./openai-errors.js";
import { readRequest } from "./openai-request.js";
import { checkTextLength, sampleWork } from "./sample-work.js";
import { type SampleServices, sampleEvents } from "./sampled-tokens.js";
import type { TextModel, TextModels } from "./text-models.js";
import { Usage } from "./usage.js";

/** What completions need of the server. */
export interface CompletionServices extends ModelServices, SampleServices {
  readonly clock: Clock;
  readonly reader: BodyReader;
  readonly textModelOf: TextModels;
}

/** Conversations in, messages out, in the model's own format. */
export function addChatRoutes(app: App, services: CompletionServices): void {
  const { clock, reader, textModelOf } = services;
  for (const path of OPENAI_PATHS) {
    app.post(`${path}/chat/completions`, async (call) => {
      const request = await readRequest(call, reader, chatSchema);
      const identity = call.get("identity");
      const model = findModel(services, identity, request.model);
      const text = await textModelOf(model.info);
      const prepared = prepareChat(request, text);
      const gone = new AbortController();
      const signal = AbortSignal.any([call.req.raw.signal, gone.signal]);
      const works = [prepared.work];
      const isLive = request.stream === true;
      const usage = new Usage();
      usage.promptTokens = prepared.work.prompt.length;
      const samples = sampleEvents(services, { identity, model, works, isLive, signal });
      const events = choiceEvents(samples, prepared, usage);
      const created = Math.floor(clock.wallNow() / 1000);
      const head = { id: `chatcmpl-${randomUUID()}`, created, model: request.model };
      const logprobsOf = (places: readonly ScoredPlace[]) =>
        request.logprobs ? chatLogprobs(text.tokenNames, places) : null;
      if (isLive) {
        const withUsage = request.stream_options?.include_usage === true;
        return eventStream(chatChunks(events, { head, usage, withUsage, logprobsOf }), gone);
      }
      const choices = await wholeChoices(events, request.n ?? 1, logprobsOf);
      return call.json({ ...head, object: "chat.completion", choices, usage: usage.toJson() });
    });
  }
}

/** A conversation as the model will read it. */
interface WrittenChat {
  readonly renderer: Renderer;
  readonly conversation: readonly Message[];
  readonly hasTools: boolean;
  readonly constraint: JsonConstraint | undefined;
  readonly prompt: readonly number[];
  /** What the prompt has written of the answer. */
  readonly opening: string;
}

/** Writes a conversation in the model's format, whatever its length. */
export function writeChat(request: ChatRequest, { info, formats }: TextModel): WrittenChat {
  const messages = readMessages(request);
  const { tools, isForced, forcedName } = readTools(request);
  const constraint = readConstraint(request);
  const { reasoning_effort: effort, chat_template_kwargs: variables } = request;
  const wish = { effort: effort ?? undefined, enabled: variables?.enable_thinking };
  // The beginning of a call, or JSON from the first token on, leave no place for thoughts.
  const renderer = isForced || constraint ? formats.chooseUnthinking() : formats.choose(wish);
  const opening = isForced ? renderer.callOpening(forcedName) : "";
  if (opening === undefined)
    throw unsupported("tool_choice", `must be none or auto with ${info.name}: its format opens no call.`);
  checkTextLength(JSON.stringify([messages, tools]).length, info, "messages");
  const conversation = withTools(renderer, messages, tools);
  if (constraint && !beginsWithText(renderer, conversation))
    throw unsupported(
      "response_format",
      `must be of type text with ${info.name}, which always thinks first.`,
    );
  const prompt = promptTokens(renderer, conversation, opening);
  return { renderer, conversation, hasTools: tools.length > 0, constraint, prompt, opening };
}

/** Makes a conversation ready to be sampled. */
export function prepareChat(request: ChatRequest, text: TextModel): PreparedChat {
  const { info, tokenizer } = text;
  const { renderer, conversation, hasTools, constraint, prompt, opening } = writeChat(request, text);
  const stopTexts = [request.stop ?? []].flat();
  const [turnEnds, endTexts] = stopsOf(renderer);
  const otherEnds = info.eosTokenIds.filter((token) => !turnEnds.includes(token));
  const work = sampleWork(request, info, {
    prompt,
    promptParam: "messages",
    maxTokens: request.max_completion_tokens ?? request.max_tokens ?? undefined,
    stopTokens: [...turnEnds, ...otherEnds],
    // JSON ends by itself.
    stopTexts: constraint ? stopTexts : [...endTexts, ...stopTexts],
    topLogprobs: request.logprobs ? (request.top_logprobs ?? 0) : 0,
    scoresPrompt: false,
    constraint,
  });
  const prefill = tokenizer.encode(opening, { addSpecialTokens: false });
  return {
    work,
    turnEnds,
    otherEnds,
    newReader: () =>
      new AnswerReader({
        parser: constraint ? plainText(tokenizer, turnEnds) : renderer.streamParser(conversation, stopTexts),
        readsCalls: hasTools,
        callSign: renderer.callSign,
        maxCalls: request.parallel_tool_calls === false ? 1 : undefined,
        prefill,
      }),
  };
}

/** Whether an answer is shown from its first token on. */
function beginsWithText(renderer: Renderer, answered: readonly Message[]): boolean {
  const parser = renderer.streamParser(answered);
  const deltas = [
    ...parser.push(renderer.tokenizer.encode("{}", { addSpecialTokens: false })),
    ...parser.end(),
  ];
  return deltas.some((delta) => delta.type === "text" && delta.text.startsWith("{"));
}

/** Reads all of an answer as text: within JSON there are no tags. */
function plainText(tokenizer: Tokenizer, endTokens: readonly number[]): StreamParser {
  return new StreamParser({
    tokenizer,
    endTokens,
    endTexts: [],
    prefix: "",
    format: { first: "text", ends: { text: [], thinking: [], hidden: [] }, after: (kind) => kind },
    parse: (tokens) => ({
      message: { role: "assistant", content: tokenizer.decode(tokens) },
      termination: "stop_sequence",
    }),
  });
}

/** Tools are declared before the conversation, together with what its system message says. */
function withTools(
  renderer: Renderer,
  messages: readonly Message[],
  tools: ReturnType<typeof readTools>["tools"],
): readonly Message[] {
  if (tools.length === 0) return messages;
  const [first, ...rest] = messages;
  const hasSystem = first?.role === "system";
  try {
    const declared = renderer.declareTools(tools, hasSystem ? textOf(first) : "");
    return [...declared, ...(hasSystem ? rest : messages)];
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    throw unsupported("tools", `cannot be given to this model: ${error.message}`);
  }
}

function promptTokens(renderer: Renderer, messages: readonly Message[], prefill: string): readonly number[] {
  try {
    const { chunks } = renderer.buildPrompt(messages, prefill === "" ? {} : { prefill });
    return chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : []));
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    throw invalidValue("messages", `messages cannot be written in this model's format: ${error.message}`);
  }
}

function stopsOf({ stopSequences }: Renderer): [tokens: number[], texts: string[]] {
  const stops: readonly (number | string)[] = stopSequences;
  return [stops.filter((stop) => typeof stop === "number"), stops.filter((stop) => typeof stop === "string")];
}
