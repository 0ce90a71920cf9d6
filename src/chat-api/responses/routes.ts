import type { Context, Env } from "hono";
import type { HttpError } from "../../http-error.js";
import { randomUuid } from "../../transport/ids.js";
import type { StopReason } from "../../wire/index.js";
import type { ChatHost } from "../chat-host.js";
import { eventStream, namedEvent, type StreamedAnswer } from "../event-stream.js";
import { refuseOf } from "../lenience.js";
import { chatLogprobs } from "../logprobs.js";
import { openTurn, TurnAnswers } from "../open-turn.js";
import { OPENAI_PATHS } from "../openai-errors.js";
import { ParamError } from "../param-error.js";
import { PromptTooLongError } from "../prompt-room.js";
import { History, withIds } from "./history.js";
import { readResponseRequest } from "./read-request.js";
import { echoedFields, RESPONSE_PARAM_NAMES, responseConversation } from "./request.js";
import { addStoredRoutes } from "./stored-routes.js";
import { itemIdsOf, type ResponseHead, ResponseWriter } from "./writer.js";

/** Routes of OpenAI's Responses API; the server stores conversations. */
export function addResponseRoutes<E extends Env>(host: ChatHost<E>): void {
  const { app } = host;
  for (const path of OPENAI_PATHS) {
    app.post(`${path}/responses`, async (call) => {
      const opened = await open(host, call);
      const gone = new AbortController();
      const events = new ResponseEvents(host, call, opened, gone.signal);
      if (opened.request.stream === true) return eventStream(host, events, gone);
      for await (const _ of events.events);
      return call.json(events.response);
    });

    app.post(`${path}/responses/input_tokens`, async (call) => {
      const { turn } = await open(host, call);
      return call.json({ object: "response.input_tokens", input_tokens: turn.prepared.prompt.length });
    });
  }
  addStoredRoutes(host);
}

type Opened = Awaited<ReturnType<typeof open>>;

/** Reads a request and the conversation before it, and opens it. */
async function open<E extends Env>(host: ChatHost<E>, call: Context<E>) {
  const refuse = refuseOf(host, call);
  const history = new History(host.storedResponses, host.ownerOf(call));
  const read = readResponseRequest(await host.readJson(call), history, refuse);
  const { given, request, added, items } = read;
  const model = await host.models(call).find(request.model);
  const { conversation, tools } = responseConversation(request, items, refuse);
  const turn = openTurn(model, () => conversation, { names: RESPONSE_PARAM_NAMES, refuse });
  const echoed = echoedFields(given, request, Math.floor(host.clock.wallNow() / 1000));
  return { request, echoed, added, model, tools, turn };
}

/** A response in progress: its events and the complete response. */
class ResponseEvents<E extends Env> implements StreamedAnswer {
  readonly events: AsyncGenerator<object, void, undefined>;
  readonly write = namedEvent;
  readonly end = "";
  /** Set when all events were sent. */
  response: object | undefined;
  readonly #answers: TurnAnswers;
  readonly #writer: ResponseWriter;
  readonly #opened: Opened;
  readonly #keep: (response: { readonly id: string }) => void;

  constructor(host: ChatHost<E>, call: Context<E>, opened: Opened, gone: AbortSignal) {
    const { request, model, tools, turn, added, echoed } = opened;
    const include = request.include ?? [];
    const withLogprobs = include.includes("message.output_text.logprobs") || Boolean(request.top_logprobs);
    const head: ResponseHead = {
      stem: randomUuid().replaceAll("-", ""),
      fields: echoed,
      tools,
      sealsThoughts: include.includes("reasoning.encrypted_content"),
      logprobsOf: (tokens) => (withLogprobs ? chatLogprobs(model.tokenNames, tokens).content : []),
    };
    const settings = {
      maxTokens: request.max_output_tokens ?? host.defaultMaxTokens,
      temperature: request.temperature ?? undefined,
      topP: request.top_p ?? undefined,
      topLogprobs: request.top_logprobs ?? 0,
      isLive: request.stream === true,
      signal: AbortSignal.any([call.req.raw.signal, gone]),
    };
    this.#opened = opened;
    this.#answers = new TurnAnswers(turn, settings, (pieces) => itemIdsOf(head, pieces));
    this.#writer = new ResponseWriter(head, this.#answers.usage);
    this.#keep = (response) => {
      if (request.store === false) return;
      host.storedResponses.add(host.ownerOf(call), {
        response,
        input: withIds(added),
        output: this.#writer.output,
        previousId: request.previous_response_id ?? undefined,
      });
    };
    this.events = this.#events();
  }

  waiting(): string {
    return this.#writer.begin().map(namedEvent).join("");
  }

  failed(error: HttpError): string {
    const begun = this.#writer.hasBegun ? [] : this.#writer.begin();
    return [...begun, this.#writer.failed(codeOf(error), error.message)].map(namedEvent).join("");
  }

  async *#events(): AsyncGenerator<object, void, undefined> {
    const writer = this.#writer;
    let stopReason: StopReason = "stop";
    try {
      for await (const event of this.#answers) {
        // Waits for the first token or a long silence: until then, a failure can still have its own status.
        if (!writer.hasBegun) yield* writer.begin();
        yield* writer.push(event.piece, event.tokens);
        if (event.stopReason !== undefined) stopReason = event.stopReason;
      }
    } catch (error) {
      // Clients of streams expect this error as an event, and then shorten their conversation.
      const isEvent = error instanceof PromptTooLongError && this.#opened.request.stream === true;
      if (!isEvent) throw error;
      if (!writer.hasBegun) yield* writer.begin();
      yield writer.failed(
        error.code,
        `Your input exceeds the context window of this model. ${error.message}`,
      );
      return;
    }
    yield* writer.end(stopReason);
    const last = writer.finished(stopReason);
    this.response = last.response;
    // Stored before the client can refer to it.
    this.#keep(last.response);
    yield last;
  }
}

/** OpenAI's error code of a failed response. */
function codeOf(error: HttpError): string {
  if (error instanceof ParamError) return error.code;
  if (error.status === 429) return "rate_limit_exceeded";
  return error.status < 500 ? "invalid_prompt" : "server_error";
}
