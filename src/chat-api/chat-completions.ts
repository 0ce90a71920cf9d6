import type { Env } from "hono";
import type { AnswerEvent, AnswerToken } from "../renderers/answer-events.js";
import type { AnswerPiece } from "../renderers/answer-reader.js";
import { randomUuid } from "../transport/ids.js";
import type { ChatHost } from "./chat-host.js";
import { withoutChatExtras } from "./chat-left-out.js";
import { chatSchema, openAiConversation, openAiParamNames } from "./chat-request.js";
import { eventStream, openAiStream } from "./event-stream.js";
import { refuseOf } from "./lenience.js";
import { chatLogprobs } from "./logprobs.js";
import { openTurn, TurnAnswers } from "./open-turn.js";
import { OPENAI_PATHS } from "./openai-errors.js";
import { openAiSettings, readFields, usageJson } from "./openai-request.js";

/** Routes of OpenAI's chat completions, with messages in the model's own format. */
export function addChatRoutes<E extends Env>(host: ChatHost<E>): void {
  const { app, clock } = host;
  for (const path of OPENAI_PATHS) {
    app.post(`${path}/chat/completions`, async (call) => {
      const refuse = refuseOf(host, call);
      const request = readFields(withoutChatExtras(await host.readJson(call), refuse), chatSchema, refuse);
      const model = await host.models(call).find(request.model);
      const names = openAiParamNames(request);
      const turn = openTurn(model, () => openAiConversation(request), { names, refuse });
      const gone = new AbortController();
      const isLive = request.stream === true;
      const answers = new TurnAnswers(turn, {
        ...openAiSettings(request),
        maxTokens: request.max_completion_tokens ?? request.max_tokens ?? host.defaultMaxTokens,
        topLogprobs: request.logprobs ? (request.top_logprobs ?? 0) : 0,
        isLive,
        signal: AbortSignal.any([call.req.raw.signal, gone.signal]),
      });
      const created = Math.floor(clock.wallNow() / 1000);
      const head = { id: `chatcmpl-${randomUuid()}`, created, model: request.model };
      const logprobsOf = (tokens: readonly AnswerToken[]) =>
        request.logprobs ? chatLogprobs(model.tokenNames, tokens) : null;
      if (isLive) {
        const withUsage = request.stream_options?.include_usage === true;
        const chunks = chatChunks(answers, { head, withUsage, logprobsOf });
        return eventStream(host, openAiStream(chunks), gone);
      }
      const choices = (await answers.whole()).map((answer, index) => ({
        index,
        message: messageOf(answer.pieces),
        finish_reason: finishReasonOf(answer),
        logprobs: logprobsOf(answer.tokens),
      }));
      return call.json({ ...head, object: "chat.completion", choices, usage: usageJson(answers.usage) });
    });
  }
}

type LogprobsOf = (tokens: readonly AnswerToken[]) => object | null;

/** Options of the chunks of a stream. */
interface ChunkOptions {
  /** Fields that every chunk has. */
  readonly head: object;
  readonly withUsage: boolean;
  readonly logprobsOf: LogprobsOf;
}

/** The chunks of a stream: first the role, then text with its logprobs, then the reason why it ended. */
async function* chatChunks(
  answers: TurnAnswers,
  { head, withUsage, logprobsOf }: ChunkOptions,
): AsyncGenerator<object, void, undefined> {
  const common = { ...head, object: "chat.completion.chunk" };
  const chunk = (index: number, delta: object, more: object) => ({
    ...common,
    choices: [{ index, delta, logprobs: null, finish_reason: null, ...more }],
    ...(withUsage && { usage: null }),
  });
  const unsaid = new Map<number, AnswerToken[]>();
  for await (const event of answers) {
    const { sample: index, piece } = event;
    const heldBack = unsaid.get(index);
    if (heldBack === undefined) yield chunk(index, { role: "assistant", content: "" }, {});
    const tokens = [...(heldBack ?? []), ...event.tokens];
    const finish = finishReasonOf(event);
    const isTold = piece !== undefined || finish !== undefined;
    unsaid.set(index, isTold ? [] : tokens);
    if (!isTold) continue;
    const logprobs = tokens.length === 0 ? null : logprobsOf(tokens);
    yield chunk(index, piece === undefined ? {} : deltaOf(piece), {
      logprobs,
      ...(finish !== undefined && { finish_reason: finish }),
    });
  }
  if (withUsage) yield { ...common, choices: [], usage: usageJson(answers.usage) };
}

function finishReasonOf({
  stopReason,
  hasCalls,
}: Pick<AnswerEvent, "stopReason" | "hasCalls">): string | undefined {
  return hasCalls && stopReason === "stop" ? "tool_calls" : stopReason;
}

function deltaOf(piece: AnswerPiece): object {
  switch (piece.type) {
    case "text":
      return { content: piece.text };
    case "reasoning":
      return { reasoning_content: piece.text };
    case "calls":
      return { tool_calls: piece.calls.map((call, index) => ({ index, ...callOf(call) })) };
    default:
      return piece satisfies never;
  }
}

function callOf({
  id,
  name,
  arguments: given,
}: {
  id: string | undefined;
  name: string;
  arguments: string;
}): object {
  return { id, type: "function", function: { name, arguments: given } };
}

function messageOf(pieces: readonly AnswerPiece[]): object {
  const said = (type: "text" | "reasoning") =>
    pieces.map((piece) => (piece.type === type ? piece.text : "")).join("");
  const calls = pieces.flatMap((piece) => (piece.type === "calls" ? piece.calls.map(callOf) : []));
  const [text, reasoning] = [said("text"), said("reasoning")];
  return {
    role: "assistant",
    content: text === "" && calls.length > 0 ? null : text,
    refusal: null,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}
