import type { Clock } from "../../../transport/clock.js";
import { toWireJson } from "../../../wire/json-keys.js";
import type { AuditLogFile } from "../../store/audit-log.js";
import type { RequestOwner } from "../http/route.js";

/** Writes down who changed what; the event's part before the '.' is the resource. */
export type AuditTrail = (
  by: Pick<RequestOwner, "owner">,
  event: string,
  about: { modelId?: string; tinkerPath?: string; details?: Record<string, unknown> },
) => Promise<void>;

/** The trail that leads into a log. */
export function auditTrail(log: AuditLogFile, clock: Clock): AuditTrail {
  return ({ owner }, event, { modelId = null, tinkerPath = null, details = {} }) =>
    log.append({
      timestamp: new Date(clock.wallNow()).toISOString(),
      owner,
      event,
      modelId,
      tinkerPath,
      details: toWireJson(details) as Record<string, unknown>,
    });
}
