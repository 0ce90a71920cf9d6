import {
  type ConversationApi,
  givenAnswerOf,
  type ResponseStore,
  readPassedRequest,
} from "../../chat-api/index.js";
import { messageOf } from "../../errors.js";
import type { App, Call } from "../../local/server/http/route.js";
import type { Logger } from "../../transport/logger.js";
import type { AgentSession, PassingRequest } from "../agent-session.js";
import type { ForeignAnswer } from "../passed-threads.js";
import { EventReader, MAX_ANSWER_BYTES } from "./event-reader.js";
import { passedHeaders, type UpstreamService } from "./service.js";
import { streamedBody } from "./streamed-body.js";

/** The parts of the gateway that passing requests on uses. */
export interface PassRoutes {
  readonly service: UpstreamService;
  readonly responses: ResponseStore;
  readonly logger: Pick<Logger, "warn">;
  /** The body of a request as it was sent, and what it holds. */
  readBody(call: Call): Promise<{ readonly value: Readonly<Record<string, unknown>>; readonly text: string }>;
  /** The session that a request belongs to. */
  sessionOf(call: Call, conversation: Parameters<AgentSession["pass"]>[0]): AgentSession;
  ownerOf(call: Call): string;
  /** Whether the credentials of a request are meant for the service. */
  hasOwnKey(call: Call): boolean;
}

const APIS: readonly (readonly [end: RegExp, api: ConversationApi])[] = [
  [/^\/(?:oai\/api\/)?v1\/chat\/completions$/, "chat"],
  [/^\/(?:oai\/api\/)?v1\/responses$/, "responses"],
  [/^\/anthropic\/v1\/messages$/, "messages"],
];

type ReadAnswers = (body: Readonly<Record<string, unknown>>) => readonly ForeignAnswer[];

/** Passes everything below the APIs' paths to another service, and remembers the conversations. */
export function addPassRoutes(app: App, routes: PassRoutes): void {
  const { service, responses, logger, readBody, sessionOf, ownerOf, hasOwnKey } = routes;
  const warned = new Set<string>();
  const warn = (problem: string) => {
    if (warned.size >= 100 || warned.has(problem)) return;
    warned.add(problem);
    logger.warn(problem);
  };

  /** The conversation of a request, where it has one that can be read. */
  function read(api: ConversationApi, body: Readonly<Record<string, unknown>>, owner: string) {
    try {
      const { conversation, answers } = readPassedRequest(api, body, { responses, owner });
      const toForeign: ReadAnswers = (answer) =>
        answers(answer).map((each) => ({
          message: each.message,
          known: givenAnswerOf(each),
          model: String(answer["model"] ?? body["model"]),
          stopReason: each.stopReason,
        }));
      return { conversation, answers: toForeign };
    } catch (error) {
      warn(`Requests are passed on and not recorded: ${messageOf(error)}`);
      return undefined;
    }
  }

  async function pass(call: Call): Promise<Response> {
    const { method, path, raw } = call.req;
    const body = method === "GET" || method === "HEAD" ? undefined : await readBody(call);
    const api = method === "POST" ? APIS.find(([end]) => end.test(path))?.[1] : undefined;
    const known = api && read(api, body!.value, ownerOf(call));
    // Lists of models and counts of tokens belong to no conversation.
    const passing = api && sessionOf(call, known?.conversation).pass(known?.conversation, raw.signal);
    const signal = passing?.signal ?? raw.signal;
    try {
      const answer = await service.send(raw, { path, body: body?.text, hasOwnKey: hasOwnKey(call), signal });
      const headers = passedHeaders(answer);
      if (answer.body === null || passing === undefined || api === undefined) {
        passing?.release();
        return new Response(answer.body, { status: answer.status, headers });
      }
      const isStream = headers.get("content-type")?.includes("event-stream") ?? false;
      const push =
        !answer.ok || known === undefined
          ? readNothing
          : isStream
            ? readStream(api, known.answers)
            : readWhole(known.answers);
      return new Response(watched(answer.body, { passing, push, warn }), { status: answer.status, headers });
    } catch (error) {
      passing?.release();
      throw error;
    }
  }

  for (const path of ["/v1", "/oai/api/v1", "/anthropic/v1"]) app.all(`${path}/*`, pass);
}

/** Takes the bytes of an answer, and undefined at their end; gives the answers when they are complete. */
type PushBytes = (bytes: Uint8Array | undefined) => readonly ForeignAnswer[] | undefined;

const readNothing: PushBytes = (bytes) => (bytes === undefined ? [] : undefined);

function readStream(api: ConversationApi, answers: ReadAnswers): PushBytes {
  const events = new EventReader();
  const parts = streamedBody(api);
  let isOver = false;
  return (bytes) => {
    if (isOver || bytes === undefined) return undefined;
    for (const data of events.push(bytes)) {
      isOver = data === "[DONE]" || parts.push(JSON.parse(data) as Readonly<Record<string, unknown>>);
      if (isOver) return answers(parts.body());
    }
    if (events.isTooLong) throw new Error("an answer is too long to be recorded");
    return undefined;
  };
}

function readWhole(answers: ReadAnswers): PushBytes {
  const kept: Uint8Array[] = [];
  let length = 0;
  return (bytes) => {
    if (bytes === undefined) return answers(JSON.parse(Buffer.concat(kept).toString("utf8")));
    length += bytes.length;
    if (length > MAX_ANSWER_BYTES) throw new Error("an answer is too long to be recorded");
    kept.push(bytes);
    return undefined;
  };
}

/** How the bytes of an answer are watched. */
interface Watching {
  readonly passing: PassingRequest;
  readonly push: PushBytes;
  readonly warn: (problem: string) => void;
}

/** The bytes of an answer as they arrive. The end is held back until the answer is remembered: the next request may follow at once. */
function watched(
  body: ReadableStream<Uint8Array>,
  { passing, push, warn }: Watching,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  let isReading = true;
  let isReleased = false;
  const release = () => {
    if (!isReleased) passing.release();
    isReleased = true;
  };
  async function remember(bytes: Uint8Array | undefined): Promise<void> {
    if (!isReading) return;
    try {
      const answers = push(bytes);
      if (answers === undefined) return;
      isReading = false;
      await passing.answered(answers);
    } catch (error) {
      isReading = false;
      await passing.answered([]);
      warn(`An answer was passed on and not recorded: ${messageOf(error)}`);
    }
  }
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        await remember(value);
        if (!done) return controller.enqueue(value);
        release();
        controller.close();
      } catch (error) {
        release();
        controller.error(error);
      }
    },
    async cancel(reason) {
      release();
      await reader.cancel(reason).catch(() => {});
    },
  });
}
