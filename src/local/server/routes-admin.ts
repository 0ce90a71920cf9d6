import { z } from "zod";
import type { UsageEvent } from "../store/usage-log.js";
import { queryOf } from "./body.js";
import { type App, type Core, isoTime, projectOf } from "./core.js";
import { invalid } from "./http-error.js";
import { mayAccess } from "./identity.js";
import * as schemas from "./schemas.js";

const HOUR_MS = 3_600_000;
const LONGEST_RANGE_MS = 14 * 24 * HOUR_MS;

/** The audit log and what was used: tokens really processed, bytes really stored. Nothing here costs money. */
export function addAdminRoutes(app: App, core: Core): void {
  app.get("/api/v1/audit", async (context) => {
    const query = queryOf(context, schemas.auditQuery);
    const identity = context.get("identity");
    const day = query.day ?? isoTime(core.clock.wallNow()).slice(0, 10);
    const entries = (await core.store.audit.read(day)).filter(
      (entry) =>
        mayAccess(identity, entry.owner) &&
        (query.event_type === "all" || entry.event.startsWith(`${query.event_type}.`)),
    );
    return context.json({
      entries: entries.map((entry) => ({
        timestamp: entry.timestamp,
        event: entry.event,
        event_details: entry.details,
        model_id: entry.modelId,
        tinker_path: entry.tinkerPath,
        purpose: null,
      })),
    });
  });

  app.get("/api/v1/billing/usage/events", (context) => {
    const query = queryOf(context, z.object({ starting_on: z.string(), ending_before: z.string() }));
    const startMs = hour("starting_on", query.starting_on);
    const endMs = hour("ending_before", query.ending_before);
    if (endMs <= startMs) throw invalid("ending_before", "must be after starting_on", "query");
    if (endMs - startMs > LONGEST_RANGE_MS)
      throw invalid("ending_before", "must be at most 14 days after starting_on", "query");
    const identity = context.get("identity");
    const events = core.store.usage
      .between(startMs, endMs)
      .filter((event) => mayAccess(identity, event.owner));
    const sessions: Record<string, { user_metadata: Record<string, string> | null }> = {};
    for (const { sessionId } of events) {
      const session = sessionId === null ? undefined : core.store.sessions.get(sessionId);
      if (session !== undefined) sessions[session.id] = { user_metadata: session.userMetadata };
    }
    return context.json({
      data: events.map((event) => usageView(core, event)),
      sessions,
      cost_data_through: null,
    });
  });

  app.get("/api/v1/billing/usage/checkpoints/current", (context) => {
    const query = queryOf(context, z.object({ project_id: z.string().optional() }));
    const identity = context.get("identity");
    const groups = new Map<string, { project: string | null; owner: string; count: number; bytes: number }>();
    for (const record of core.store.checkpoints.list()) {
      const run = core.store.runs.get(record.runId);
      if (run === undefined || !mayAccess(identity, run.owner)) continue;
      if (query.project_id !== undefined && projectOf(run) !== query.project_id) continue;
      const key = JSON.stringify([run.projectId, run.owner]);
      const group = groups.get(key) ?? { project: run.projectId, owner: run.owner, count: 0, bytes: 0 };
      group.count += 1;
      group.bytes += record.sizeBytes;
      groups.set(key, group);
    }
    return context.json({
      effective_rate_usd_per_gigabyte_month: null,
      data: [...groups.values()].map((group) => ({
        project_id: group.project,
        org_user_urn: group.owner,
        user_email: null,
        user_name: group.owner,
        checkpoint_count: group.count,
        size_bytes: group.bytes,
        size_gigabytes: group.bytes / 1e9,
        estimated_monthly_cost_usd: null,
      })),
    });
  });
}

function hour(field: string, text: string): number {
  // Without a zone it is UTC, as all times here are, and not what the server's clock on the wall says.
  const time = Date.parse(/T[^Z+-]*$/i.test(text) ? `${text}Z` : text);
  if (Number.isNaN(time))
    throw invalid(field, `must be a time such as 2026-01-31T10:00:00Z, got ${JSON.stringify(text)}`, "query");
  if (time % HOUR_MS !== 0) throw invalid(field, "must be on a full UTC hour", "query");
  return time;
}

function usageView(core: Core, event: UsageEvent) {
  const session = event.sessionId === null ? undefined : core.store.sessions.get(event.sessionId);
  return {
    bucket_start: isoTime(event.hourStart),
    bucket_end: isoTime(event.hourStart + HOUR_MS),
    base_model: event.baseModel,
    user_id: event.owner,
    user_name: event.owner,
    session_id: event.sessionId,
    project_id: session?.projectId ?? null,
    estimated_cost_usd: null,
    effective_rate_usd_per_million_tokens: null,
    effective_rate_usd_per_gigabyte_month: null,
    event_info: eventInfo(event),
  };
}

function eventInfo({ kind, count }: UsageEvent) {
  switch (kind) {
    case "training":
      return { type: "training", token_count: count };
    case "prefill":
      return { type: "sampling_prefill", cached: false, token_count: count };
    case "cached_prefill":
      return { type: "sampling_prefill", cached: true, token_count: count };
    case "sample":
      return { type: "sampling_sample", token_count: count };
    case "checkpoint":
      return { type: "checkpoint", count };
    default:
      return kind satisfies never;
  }
}
