import { Hono } from "hono";
import { inSpan, inTraceOf, loadOpenTelemetry, routeOf } from "../../../session/index.js";
import type { Clock } from "../../../transport/clock.js";
import type { Logger } from "../../../transport/logger.js";
import { discardBody } from "./body.js";
import { crossSite } from "./cross-site.js";
import { type ErrorDialect, HttpError, statusFor, toHttpError } from "./http-error.js";
import type { App, AppEnv, Call, RequestOwner } from "./route.js";

/** Paths that need an API key. */
const NEEDS_KEY = /^\/(api\/v1|oai|v1|anthropic|tokenize|detokenize|tokenizer_info)(\/|$)/;
const UNFORESEEN = "The server met an unexpected error; its log says more.";

const SERVER_SPAN = { kind: "server" } as const;

/** Options of the app around all routes. */
export interface AppOptions {
  readonly clock: Clock;
  readonly logger: Pick<Logger, "error">;
  readonly keysRequired: boolean;
  /** Web origins whose pages may use a server without keys. */
  readonly origins: readonly string[];
  readonly identify: (call: Call) => RequestOwner | Promise<RequestOwner>;
  readonly isClosing: () => boolean;
  /** The first that speaks at a path words its errors; elsewhere they are `{ detail }`. */
  readonly dialects: readonly ErrorDialect[];
  /** The path that routes are found by, for an app below addresses of several kinds. Default: the request's own. */
  readonly pathOf?: ((path: string) => string) | undefined;
  /** Routes that need no key. */
  readonly addOpenRoutes: (app: App) => void;
}

/** An app without routes of its own but `/healthz`: errors, browsers, keys, and refusals while the server closes. */
export function createApp(options: AppOptions): App {
  const { pathOf } = options;
  const app = new Hono<AppEnv>(
    pathOf === undefined ? {} : { getPath: ({ url }) => pathOf(new URL(url).pathname) },
  );

  app.onError((error, call) => {
    // The client went away while it was sending: there is no one to answer, and nothing is wrong here.
    if (call.req.raw.signal.aborted) return call.body(null, 400);
    const known = toHttpError(error);
    if (known === undefined)
      options.logger.error(`${call.req.method} ${call.req.path} failed: ${error.stack ?? error.message}`);
    return refuse(call, known ?? new HttpError(500, UNFORESEEN));
  });

  app.notFound((call) =>
    refuse(call, new HttpError(404, `There is no ${call.req.method} ${call.req.path} on this server.`)),
  );

  function refuse(call: Call, error: HttpError): Response {
    const dialect = options.dialects.find(({ speaksAt }) => speaksAt(call.req.path));
    const { status, body } = dialect?.answer(error) ?? {
      status: statusFor(error, call.req.raw),
      body: { detail: error.detail },
    };
    return call.json(body, status, error.headers);
  }

  app.use(async (call, next) => {
    await next();
    await discardBody(call.req.raw, options.clock);
  });
  void loadOpenTelemetry();
  app.use((call, next) =>
    inTraceOf(call.req.raw.headers, () =>
      inSpan(`${call.req.method} ${routeOf(call.req.path)}`, SERVER_SPAN, async (span) => {
        await next();
        span.set({ "http.response.status_code": call.res.status });
      }),
    ),
  );
  app.use(crossSite(options));
  app.get("/healthz", (call) => call.json({ status: "ok" }));
  options.addOpenRoutes(app);
  app.use(async (call, next) => {
    // A client that closes its session on a closed server needs no answer.
    if (options.isClosing() && !call.req.path.endsWith("/finish"))
      throw new HttpError(503, "This server is closing.", { connection: "close" });
    await next();
  });
  app.use(async (call, next) => {
    if (NEEDS_KEY.test(call.req.path)) call.set("identity", await options.identify(call));
    await next();
  });
  return app;
}
