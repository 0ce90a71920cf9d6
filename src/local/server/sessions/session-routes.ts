import { endpoints } from "../../../wire/endpoints/index.js";
import type { FilledMessage } from "../../../wire/fields/fields.js";
import type { SessionStatus, SessionSummary } from "../../../wire/records/rest-types.js";
import type { StoredSession } from "../../store/session-store.js";
import { idempotencyKeyOf, OncePerKey } from "../http/once-per-key.js";
import { mayAccess, type Route } from "../http/route.js";
import type { Services } from "../services.js";
import { projectOf, textMetadata } from "./live-sessions.js";

type Search = FilledMessage<typeof endpoints.searchSessions.request.shape>;

/** Sessions: opened, kept alive and finished by their clients; listed, searched and traced as they are kept. */
export function addSessionRoutes(route: Route, services: Services): void {
  const { sessions, store, signer, audit } = services;
  const opened = new OncePerKey<string>();
  const runsOf = (session: StoredSession) => store.runs.list().filter((run) => run.sessionId === session.id);

  route(endpoints.createSession, async (request, call) => {
    const identity = call.get("identity");
    const sessionId = await opened.run(identity.owner, idempotencyKeyOf(call), async () => {
      const session = await sessions.open(identity, {
        tags: [...request.tags],
        userMetadata: textMetadata(request.userMetadata),
        sdkVersion: request.sdkVersion,
        projectId: request.projectId ?? null,
        displayName: request.displayName ?? null,
      });
      return session.record.id;
    });
    return { sessionId };
  });

  route(endpoints.sessionHeartbeat, ({ sessionId }, call) => {
    sessions.use(call.get("identity"), sessionId);
    return {};
  });

  route(endpoints.finishSession, async ({ sessionId, reason, detail }, call) => {
    const session = sessions.record(call.get("identity"), sessionId);
    await sessions.finish(session.id, reason.type, detail ?? null);
  });

  route(endpoints.listSessions, ({ offset, limit }, call) => {
    const visible = store.sessions.list().filter(({ owner }) => mayAccess(call.get("identity"), owner));
    return { sessions: visible.slice(offset, offset + limit).map(({ id }) => id) };
  });

  route(endpoints.searchSessions, (request, call) => {
    const matches = store.sessions
      .list()
      .filter((session) => mayAccess(call.get("identity"), session.owner) && matchesSearch(session, request));
    const page = matches.slice(0, request.limit);
    const last = page.at(-1);
    return {
      sessions: page.map(summaryOf),
      nextCursor:
        last === undefined || matches.length === page.length
          ? null
          : { lastCreatedAt: new Date(last.createdAt).toISOString(), lastSessionId: last.id },
    };
  });

  route(endpoints.getSession, ({ sessionId }, call) => {
    const session = sessions.record(call.get("identity"), sessionId);
    return {
      trainingRunIds: runsOf(session).map((run) => run.id),
      samplerIds: session.samplers.map((sampler) => sampler.id),
      userMetadata: session.userMetadata,
      displayName: session.displayName,
    };
  });

  route(endpoints.assignSessionProject, async ({ sessionId, projectId }, call) => {
    const identity = call.get("identity");
    const session = sessions.record(identity, sessionId);
    session.projectId = projectId;
    await store.sessions.save(session);
    for (const run of runsOf(session)) {
      run.projectId = projectId;
      await store.runs.save(run);
    }
    await audit(identity, "projects.session_assigned", { details: { sessionId, projectId } });
  });

  route(endpoints.exportSessionTrace, async ({ sessionId }, call) => {
    const { id } = sessions.record(call.get("identity"), sessionId);
    if (sessions.isEnding(id)) return { status: "pending", url: null, error: null };
    if (sessions.get(id) === undefined && (await store.sessions.readTrace(id)) === undefined)
      return {
        status: "failed",
        url: null,
        error: "This session has made no requests that could be traced.",
      };
    const { url } = signer.sign(call.req.url, "/api/v1/downloads/trace", { session: id });
    return { status: "ready", url, error: null };
  });

  /** null: neither finished by its client nor known to be running. */
  function statusOf({ id, status }: StoredSession): SessionStatus | null {
    if (sessions.get(id) !== undefined) return { type: "active" };
    if (status.type !== "client_finished") return null;
    return { type: "client_finished", reason: { type: status.reason }, detail: status.detail };
  }

  function summaryOf(session: StoredSession): SessionSummary {
    const checkpoints = store.checkpoints.list(
      (record) => store.runs.get(record.runId)?.sessionId === session.id,
    );
    return {
      sessionId: session.id,
      createdAt: new Date(session.createdAt).toISOString(),
      owner: session.owner,
      projectId: projectOf(session),
      status: statusOf(session),
      checkpointsCount: checkpoints.length,
      checkpointStorageBytes: checkpoints.reduce((sum, record) => sum + record.sizeBytes, 0),
      displayName: session.displayName,
      userMetadata: session.userMetadata,
    };
  }

  function matchesSearch(session: StoredSession, search: Search): boolean {
    const { owner, projectIds, userMetadata = {}, statuses, cursor } = search;
    if (owner?.type === "user" && !owner.ownerUrns.includes(session.owner)) return false;
    if (projectIds !== undefined && !projectIds.includes(projectOf(session))) return false;
    for (const [key, value] of Object.entries(userMetadata)) {
      if (session.userMetadata?.[key] !== value) return false;
    }
    if (!matchesName(session, search)) return false;
    if (statuses !== undefined && !statuses.some((wanted) => matchesStatus(session, wanted))) return false;
    if (cursor === undefined) return true;
    const lastCreatedAt = Date.parse(cursor.lastCreatedAt);
    return (
      session.createdAt < lastCreatedAt ||
      (session.createdAt === lastCreatedAt && session.id < cursor.lastSessionId)
    );
  }

  function matchesStatus(session: StoredSession, wanted: NonNullable<Search["statuses"]>[number]): boolean {
    const status = statusOf(session);
    if (status?.type !== wanted.type) return false;
    if (wanted.type !== "client_finished" || status.type !== "client_finished") return true;
    return wanted.reasons?.includes(status.reason.type) ?? true;
  }
}

/** If both an id and a name are given, matching one of them is enough. */
function matchesName(session: StoredSession, { sessionId, displayName }: Search): boolean {
  if (sessionId === undefined && displayName === undefined) return true;
  if (session.id === sessionId) return true;
  if (displayName === undefined) return false;
  const shown = (session.displayName ?? "").toLowerCase();
  return displayName
    .toLowerCase()
    .split(/\s+/)
    .every((word) => shown.includes(word));
}
