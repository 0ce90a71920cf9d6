import type { Context, Hono } from "hono";
import { ValidationError } from "../../../errors.js";
import { decodeRequest, type Endpoint } from "../../../wire/endpoints/endpoint.js";
import type { FilledMessage, Shape } from "../../../wire/fields/fields.js";
import { type BodyReader, readJsonObject } from "./body.js";
import { fieldError } from "./http-error.js";

/** The sender of a request. Without API keys, all requests come from one local user, who sees everything. */
export interface RequestOwner {
  readonly owner: string;
  readonly seesAll: boolean;
}

/** Whether an identity may see what belongs to `owner`. */
export function mayAccess(identity: RequestOwner, owner: string): boolean {
  return identity.seesAll || identity.owner === owner;
}

/** Where a request came from. */
export interface Connection {
  /** The other end of its socket; absent for a request of this process. */
  readonly address?: string | undefined;
}

/** Context of a request: its connection, who sent it, and its JSON text. */
export type AppEnv = { Bindings: Connection; Variables: { identity: RequestOwner; bodyText: string } };
/** The app that all routes are added to. */
export type App = Hono<AppEnv>;
/** One request on its way through the app. */
export type Call = Context<AppEnv>;

/** Answers with an object in camelCase, with nothing (a 204), or with a response of its own. */
export type Handler<S extends Shape, Answer> = (
  request: FilledMessage<S>,
  call: Call,
) => Answer | undefined | Response | Promise<Answer | undefined | Response>;

/** Looks at a request that is refused, in the form in which it came. */
export type OnRefused = (json: unknown, call: Call, error: unknown) => void;

/** Registers one endpoint of the table. */
export type Route = <S extends Shape, Answer>(
  endpoint: Endpoint<S, Answer>,
  handler: Handler<S, Answer>,
  onRefused?: OnRefused,
) => void;

/** Routes that read and answer as the table of endpoints says. */
export function routesOf(app: App, reader: BodyReader): Route {
  return (endpoint, handler, onRefused) => {
    const { method, path, tag } = endpoint;
    const place = method === "GET" || method === "DELETE" ? "query" : "body";
    const readsBody =
      place === "body" && Object.keys(endpoint.request.shape).some((name) => !path.includes(`:${name}`));
    app.on(method, path, async (call) => {
      const { value: body, text } = readsBody ? await readJsonObject(call, reader) : { value: {}, text: "" };
      call.set("bodyText", text);
      try {
        const parts = { parameters: call.req.param(), query: call.req.query(), body };
        const answer = await handler(decodeRequest(endpoint, parts), call);
        if (answer instanceof Response) return answer;
        if (answer === undefined) return call.body(null, 204);
        const isAnswer = tag !== undefined && !("future" in endpoint);
        const json = endpoint.answer.toJson(answer) as Record<string, unknown>;
        return call.json(isAnswer ? { type: tag, ...json } : json);
      } catch (error) {
        onRefused?.(body, call, error);
        throw error instanceof ValidationError ? fieldError(error, place) : error;
      }
    });
  };
}
