import { randomBytes } from "node:crypto";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import { SDK_VERSION } from "../../version.js";
import type { DashboardInfo } from "../api.js";
import { RunFolders } from "../runs/run-folders.js";
import { RunSummaries } from "../runs/run-summaries.js";
import { addChatRoute } from "./chat-route.js";
import { addCheckpointRoutes } from "./checkpoint-routes.js";
import { addEventRoute } from "./events.js";
import { guardData, guardPage } from "./guard.js";
import { addPageFiles } from "./page-files.js";
import { addRowRoute } from "./row-route.js";
import { addNotesRoute, addRunFolderRoutes, MetricsFiles } from "./run-routes.js";
import { addSampleRoutes } from "./sample-routes.js";
import { addServerRoute, serverName } from "./server-status.js";
import type { TinkerServer } from "./tinker-server.js";

/** Options of a dashboard: folders, server and permissions. */
export interface DashboardOptions {
  /** Where runs are looked for; nothing outside is read. */
  readonly folders: readonly string[];
  /** The server whose checkpoints and state are shown; none: folders alone. */
  readonly server?: TinkerServer | undefined;
  /** Nothing can be changed, deleted or sampled. */
  readonly readOnly?: boolean | undefined;
  /** Command that shows the same runs again. */
  readonly showAgain?: string | undefined;
  /** Where the page lies on its server: "/dashboard"; "" by default. */
  readonly basePath?: string | undefined;
}

/** A dashboard without a socket. */
export interface Dashboard {
  /** Made at each start; who has it may see and do everything that the page can. */
  readonly token: string;
  /** Answers what lies below the base path. */
  fetch(request: Request): Response | Promise<Response>;
  /** Ends the streams of all pages. */
  close(): void;
}

/** Shared state of a dashboard's routes. */
export interface DashboardParts {
  readonly folders: RunFolders;
  readonly summaries: RunSummaries;
  readonly metrics: MetricsFiles;
  readonly server: TinkerServer | undefined;
  readonly isReadOnly: boolean;
  /** Aborted when the dashboard is closed. */
  readonly closed: AbortSignal;
}

/** The dashboard's page and its data as a function from request to response. */
export function createDashboard(options: DashboardOptions): Dashboard {
  const { server, readOnly: isReadOnly = false, basePath = "" } = options;
  const folders = new RunFolders(options.folders);
  const closing = new AbortController();
  const token = randomBytes(24).toString("base64url");
  const parts: DashboardParts = {
    folders,
    summaries: new RunSummaries(folders),
    metrics: new MetricsFiles(),
    server,
    isReadOnly,
    closed: closing.signal,
  };
  const app = new Hono({ strict: false }).basePath(basePath);
  app.onError((error, context) => {
    if (error instanceof HTTPException) return context.json({ error: error.message }, error.status);
    const status = error instanceof ValidationError ? 400 : error instanceof TinkerError ? 502 : 500;
    return context.json({ error: messageOf(error) }, status);
  });
  app.notFound((context) => context.json({ error: `There is no ${context.req.path} here.` }, 404));
  app.use(guardPage());
  app.use(async (context, next) => {
    // The page's addresses are relative, so that it can lie anywhere.
    if (new URL(context.req.url).pathname === basePath) return context.redirect(`${basePath}/`);
    await next();
    return undefined;
  });
  addPageFiles(app);
  app.use("/api/*", guardData(token));
  app.get("/api/info", (context) =>
    context.json({
      version: SDK_VERSION,
      isReadOnly,
      server: serverName(server),
      showAgain: options.showAgain,
    } satisfies DashboardInfo),
  );
  addRunFolderRoutes(app, parts);
  addNotesRoute(app, parts);
  addSampleRoutes(app, parts);
  addCheckpointRoutes(app, parts);
  addServerRoute(app, parts);
  addChatRoute(app, parts);
  addRowRoute(app, parts);
  addEventRoute(app, parts);
  return { token, fetch: (request) => app.fetch(request), close: () => closing.abort() };
}
