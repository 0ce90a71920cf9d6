import { Hono, type MiddlewareHandler } from "hono";
import type { Logger } from "../../transport/logger.js";
import { discardBody } from "./body.js";
import type { App, AppEnv, Core } from "./core.js";
import { crossSite } from "./cross-site.js";
import { HttpError, toHttpError } from "./http-error.js";
import { addAdminRoutes } from "./routes-admin.js";
import { addCopyRoutes } from "./routes-copy.js";
import { addDownloadRoutes } from "./routes-downloads.js";
import { addFutureRoutes } from "./routes-futures.js";
import { addOpenAiRoutes } from "./routes-openai.js";
import { addRunRoutes } from "./routes-runs.js";
import { addSamplingRoutes } from "./routes-sampling.js";
import { addServiceRoutes } from "./routes-service.js";
import { addSessionRoutes } from "./routes-sessions.js";
import { addTrainingRoutes } from "./routes-training.js";
import { addWeightsRoutes } from "./routes-weights.js";

/** The whole HTTP interface as a function from request to response. */
export function createApp(
  core: Core,
  options: { origins: readonly string[]; logger: Pick<Logger, "error"> },
): App {
  const app = new Hono<AppEnv>();

  app.onError((error, context) => {
    const known = toHttpError(error);
    // A client that went away while it was sending: nobody is there to be told, and nothing of ours is wrong.
    if (context.req.raw.signal.aborted) return context.body(null, 400);
    if (known === undefined) {
      options.logger.error(
        `${context.req.method} ${context.req.path} failed: ${error.stack ?? error.message}`,
      );
      return context.json({ detail: "The server met an unexpected error; its log says more." }, 500);
    }
    if (context.req.path.startsWith("/oai/")) {
      const type = known.status < 500 ? "invalid_request_error" : "server_error";
      return context.json({ error: { message: known.message, type } }, known.status, known.headers);
    }
    return context.json({ detail: known.detail }, known.status, known.headers);
  });

  app.notFound((context) =>
    context.json({ detail: `There is no ${context.req.method} ${context.req.path} on this server.` }, 404),
  );

  app.use(async (context, next) => {
    await next();
    await discardBody(context.req.raw, core.clock);
  });
  app.use(crossSite({ keysRequired: core.identities.keysRequired, origins: options.origins }));

  const health = { status: "ok" };
  app.get("/healthz", (context) => context.json(health));
  app.get("/api/v1/healthz", (context) => context.json(health));
  addDownloadRoutes(app, core);

  const identify: MiddlewareHandler<AppEnv> = async (context, next) => {
    context.set("identity", core.identities.ofRequest(context.req.raw));
    await next();
  };
  const refuseWhenClosing: MiddlewareHandler<AppEnv> = async (context, next) => {
    // A session that says goodbye to a closed server has what it wants.
    if (core.futures.isClosed && !context.req.path.endsWith("/finish"))
      throw new HttpError(503, "This server is closing.", { connection: "close" });
    await next();
  };
  app.use(refuseWhenClosing);
  app.use("/api/v1/*", identify);
  app.use("/oai/*", identify);
  addServiceRoutes(app, core);
  addTrainingRoutes(app, core);
  addWeightsRoutes(app, core);
  addCopyRoutes(app, core);
  addSamplingRoutes(app, core);
  addFutureRoutes(app, core);
  addRunRoutes(app, core);
  addSessionRoutes(app, core);
  addAdminRoutes(app, core);
  addOpenAiRoutes(app, core);
  return app;
}
