import type { Clock } from "../../../transport/clock.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import type {
  BillingEventInfo,
  BillingUsageEvent,
  BillingUsageSession,
} from "../../../wire/records/rest-types.js";
import type { Store } from "../../store/store.js";
import type { UsageEvent } from "../../store/usage-log.js";
import { mayAccess, type Route } from "../http/route.js";
import { projectOf } from "../sessions/live-sessions.js";

const HOUR_MS = 3_600_000;

/** The audit log and what was used: tokens really processed, bytes really stored. Nothing here costs money. */
export function addAdminRoutes(
  route: Route,
  { store, clock }: { readonly store: Store; readonly clock: Clock },
): void {
  route(endpoints.getAuditLog, async ({ eventType, day }, call) => {
    const identity = call.get("identity");
    const entries = await store.audit.read(day ?? new Date(clock.wallNow()).toISOString().slice(0, 10));
    const visible = entries.filter(
      ({ owner, event }) =>
        mayAccess(identity, owner) && (eventType === "all" || event.startsWith(`${eventType}.`)),
    );
    return {
      entries: visible.map(({ timestamp, event, details, modelId, tinkerPath }) => ({
        timestamp,
        event,
        eventDetails: details,
        modelId,
        tinkerPath,
        purpose: null,
      })),
    };
  });

  route(endpoints.getBillingUsage, ({ startingOn, endingBefore }, call) => {
    const identity = call.get("identity");
    const events = store.usage
      .between(Date.parse(startingOn), Date.parse(endingBefore))
      .filter(({ owner }) => mayAccess(identity, owner));
    const sessions: Record<string, BillingUsageSession> = {};
    for (const { sessionId } of events) {
      const session = sessionId === null ? undefined : store.sessions.get(sessionId);
      if (session !== undefined) sessions[session.id] = { userMetadata: session.userMetadata };
    }
    return { data: events.map(usageView), sessions, costDataThrough: null };
  });

  route(endpoints.getCurrentCheckpointStorageUsage, ({ projectId }, call) => {
    const identity = call.get("identity");
    const groups = new Map<string, { project: string | null; owner: string; count: number; bytes: number }>();
    for (const record of store.checkpoints.list()) {
      const run = store.runs.get(record.runId);
      if (run === undefined || !mayAccess(identity, run.owner)) continue;
      if (projectId !== undefined && projectOf(run) !== projectId) continue;
      const key = JSON.stringify([run.projectId, run.owner]);
      const group = groups.get(key) ?? { project: run.projectId, owner: run.owner, count: 0, bytes: 0 };
      group.count += 1;
      group.bytes += record.sizeBytes;
      groups.set(key, group);
    }
    return {
      effectiveRateUsdPerGigabyteMonth: null,
      data: [...groups.values()].map(({ project, owner, count, bytes }) => ({
        projectId: project,
        orgUserUrn: owner,
        userEmail: null,
        userName: owner,
        checkpointCount: count,
        sizeBytes: bytes,
        sizeGigabytes: bytes / 1e9,
        estimatedMonthlyCostUsd: null,
      })),
    };
  });

  function usageView(event: UsageEvent): BillingUsageEvent {
    const { hourStart, baseModel, owner, sessionId } = event;
    const session = sessionId === null ? undefined : store.sessions.get(sessionId);
    return {
      bucketStart: new Date(hourStart).toISOString(),
      bucketEnd: new Date(hourStart + HOUR_MS).toISOString(),
      baseModel,
      userId: owner,
      userName: owner,
      sessionId,
      projectId: session?.projectId ?? null,
      estimatedCostUsd: null,
      effectiveRateUsdPerMillionTokens: null,
      effectiveRateUsdPerGigabyteMonth: null,
      eventInfo: eventInfo(event),
    };
  }
}

function eventInfo({ kind, count }: UsageEvent): BillingEventInfo {
  switch (kind) {
    case "training":
      return { type: "training", tokenCount: count };
    case "prefill":
      return { type: "sampling_prefill", cached: false, tokenCount: count };
    case "cached_prefill":
      return { type: "sampling_prefill", cached: true, tokenCount: count };
    case "sample":
      return { type: "sampling_sample", tokenCount: count };
    case "checkpoint":
      return { type: "checkpoint", count };
    default:
      return kind satisfies never;
  }
}
