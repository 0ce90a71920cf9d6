import { Hono } from "hono";
import type { Clock } from "../../../transport/clock.js";
import type { Logger } from "../../../transport/logger.js";
import { discardBody } from "./body.js";
import { crossSite } from "./cross-site.js";
import { HttpError, statusFor, toHttpError } from "./http-error.js";
import type { App, AppEnv, Identity } from "./route.js";

/** What every request passes through, whatever its route. */
export interface AppOptions {
  readonly clock: Clock;
  readonly logger: Pick<Logger, "error">;
  readonly keysRequired: boolean;
  /** Web origins whose pages may use a server without keys. */
  readonly origins: readonly string[];
  readonly identify: (request: Request) => Identity;
  readonly isClosing: () => boolean;
  /** Routes that need no key. */
  readonly addOpenRoutes: (app: App) => void;
}

/** An app without routes of its own but `/healthz`: errors, browsers, keys, and refusals while the server closes. */
export function createApp(options: AppOptions): App {
  const app = new Hono<AppEnv>();

  app.onError((error, call) => {
    const known = toHttpError(error);
    // A client that went away while it was sending: nobody is there to be told, and nothing of ours is wrong.
    if (call.req.raw.signal.aborted) return call.body(null, 400);
    if (known === undefined) {
      options.logger.error(`${call.req.method} ${call.req.path} failed: ${error.stack ?? error.message}`);
      return call.json({ detail: "The server met an unexpected error; its log says more." }, 500);
    }
    if (call.req.path.startsWith("/oai/")) {
      const type = known.status < 500 ? "invalid_request_error" : "server_error";
      return call.json({ error: { message: known.message, type } }, known.status, known.headers);
    }
    return call.json({ detail: known.detail }, statusFor(known, call.req.raw), known.headers);
  });

  app.notFound((call) =>
    call.json({ detail: `There is no ${call.req.method} ${call.req.path} on this server.` }, 404),
  );

  app.use(async (call, next) => {
    await next();
    await discardBody(call.req.raw, options.clock);
  });
  app.use(crossSite(options));
  app.get("/healthz", (call) => call.json({ status: "ok" }));
  options.addOpenRoutes(app);
  app.use(async (call, next) => {
    // A session that says goodbye to a closed server has what it wants.
    if (options.isClosing() && !call.req.path.endsWith("/finish"))
      throw new HttpError(503, "This server is closing.", { connection: "close" });
    await next();
  });
  app.use(async (call, next) => {
    if (/^\/(api\/v1|oai)\//.test(call.req.path)) call.set("identity", options.identify(call.req.raw));
    await next();
  });
  return app;
}
