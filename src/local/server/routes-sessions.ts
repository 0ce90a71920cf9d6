import type { SessionRecord } from "../store/session-store.js";
import { jsonBody, queryOf } from "./body.js";
import { type App, audit, type Core, isoTime, projectOf } from "./core.js";
import { HttpError } from "./http-error.js";
import { type Identity, mayAccess } from "./identity.js";
import { sessionStatus, sessionView } from "./rest-views.js";
import * as schemas from "./schemas.js";

/** Sessions as they are kept: list, search, projects, end, trace. */
export function addSessionRoutes(app: App, core: Core): void {
  const { sessions, runs } = core.store;

  const own = (identity: Identity, id: string): SessionRecord => {
    const session = sessions.get(id);
    if (session !== undefined && mayAccess(identity, session.owner)) return session;
    throw new HttpError(404, `There is no session ${id}.`);
  };

  app.get("/api/v1/sessions", (context) => {
    const query = queryOf(context, schemas.listSessions);
    const identity = context.get("identity");
    const visible = sessions.list().filter((session) => mayAccess(identity, session.owner));
    return context.json({
      sessions: visible.slice(query.offset, query.offset + query.limit).map((session) => session.id),
    });
  });

  app.post("/api/v1/sessions/search", async (context) => {
    const request = await jsonBody(context, core, schemas.searchSessions);
    const identity = context.get("identity");
    const matches = sessions
      .list()
      .filter((session) => mayAccess(identity, session.owner) && matchesSearch(core, session, request));
    const page = matches.slice(0, request.limit);
    const last = page.at(-1);
    return context.json({
      sessions: page.map((session) => sessionView(core, session)),
      next_cursor:
        last === undefined || matches.length === page.length
          ? null
          : { last_created_at: isoTime(last.createdAt), last_session_id: last.id },
    });
  });

  app.get("/api/v1/sessions/:id", (context) => {
    const session = own(context.get("identity"), context.req.param("id"));
    return context.json({
      training_run_ids: runs
        .list()
        .filter((run) => run.sessionId === session.id)
        .map((run) => run.id),
      sampler_ids: session.samplers.map((sampler) => sampler.id),
      user_metadata: session.userMetadata,
      display_name: session.displayName,
    });
  });

  app.put("/api/v1/sessions/:id/project", async (context) => {
    const identity = context.get("identity");
    const session = own(identity, context.req.param("id"));
    const request = await jsonBody(context, core, schemas.assignProject);
    session.projectId = request.project_id;
    await sessions.save(session);
    for (const run of runs.list()) {
      if (run.sessionId !== session.id) continue;
      run.projectId = request.project_id;
      await runs.save(run);
    }
    await audit(core, identity, "projects.session_assigned", {
      details: { session_id: session.id, project_id: request.project_id },
    });
    return context.body(null, 204);
  });

  app.post("/api/v1/sessions/:id/finish", async (context) => {
    const identity = context.get("identity");
    const session = own(identity, context.req.param("id"));
    const request = await jsonBody(context, core, schemas.finishSession);
    const live = core.sessions.get(session.id);
    if (live !== undefined) await core.sessions.finish(live, request.reason.type, request.detail ?? null);
    return context.body(null, 204);
  });

  app.get("/api/v1/sessions/:id/trace_export", async (context) => {
    const session = own(context.get("identity"), context.req.param("id"));
    if (core.sessions.isEnding(session.id))
      return context.json({ status: "pending", url: null, error: null });
    const hasTrace = core.sessions.isLive(session.id) || (await sessions.readTrace(session.id)) !== undefined;
    if (!hasTrace) {
      return context.json({
        status: "failed",
        url: null,
        error: "This session has made no requests that could be traced.",
      });
    }
    const { url } = core.signer.sign(context.req.url, "/api/v1/downloads/trace", { session: session.id });
    return context.json({ status: "ready", url, error: null });
  });
}

type Search = ReturnType<typeof schemas.searchSessions.parse>;

function matchesSearch(core: Core, session: SessionRecord, search: Search): boolean {
  if (search.owner.type === "user" && !search.owner.owner_urns.includes(session.owner)) return false;
  if (search.project_ids && !search.project_ids.includes(projectOf(session))) return false;
  for (const [key, value] of Object.entries(search.user_metadata)) {
    if (session.userMetadata?.[key] !== value) return false;
  }
  if (!matchesName(session, search)) return false;
  if (search.statuses && !search.statuses.some((wanted) => matchesStatus(core, session, wanted)))
    return false;
  const { cursor } = search;
  if (!cursor) return true;
  const lastCreatedAt = Date.parse(cursor.last_created_at);
  return (
    session.createdAt < lastCreatedAt ||
    (session.createdAt === lastCreatedAt && session.id < cursor.last_session_id)
  );
}

/** With both an id and a name, matching either is enough. */
function matchesName(session: SessionRecord, search: Search): boolean {
  const { session_id: id, display_name: name } = search;
  if (!id && !name) return true;
  if (id && session.id === id) return true;
  if (!name) return false;
  const shown = (session.displayName ?? "").toLowerCase();
  return name
    .toLowerCase()
    .split(/\s+/)
    .every((word) => shown.includes(word));
}

function matchesStatus(
  core: Core,
  session: SessionRecord,
  wanted: NonNullable<Search["statuses"]>[number],
): boolean {
  const status = sessionStatus(core, session);
  if (status?.type !== wanted.type) return false;
  if (wanted.type !== "client_finished" || !wanted.reasons || session.status.type !== "client_finished")
    return true;
  return wanted.reasons.includes(session.status.reason);
}
