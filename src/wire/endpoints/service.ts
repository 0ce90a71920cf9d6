import * as f from "../fields/index.js";
import type * as Service from "../records/session-types.js";
import { anyShortText, finishReason, metadata, shortText, tags, textUpTo, wireJson } from "./common.js";
import { endpoint, json } from "./endpoint.js";

const MAX_TELEMETRY_EVENTS = 10_000;
const MAX_DETAIL = 16_384;

/** Start-up of a client: health, settings, tokens, sessions and their heartbeats, telemetry. */
export const serviceEndpoints = {
  health: endpoint("GET", "/api/v1/healthz", {
    pool: "session",
    answer: json<{ readonly status: string }>(),
  }),
  getServerCapabilities: endpoint("GET", "/api/v1/get_server_capabilities", {
    answer: json<Service.ServerCapabilities>(),
    lists: ["supportedModels"],
  }),
  clientConfig: endpoint("POST", "/api/v1/client/config", {
    pool: "session",
    fields: { sdkVersion: f.withDefault(anyShortText, "") },
    answer: json<Service.ClientConfig>(),
  }),
  dynamicConfig: endpoint("POST", "/api/v1/client/dynamic_config", {
    pool: "session",
    fields: { sdkVersion: f.withDefault(anyShortText, "") },
    answer: json<Service.ClientDynamicConfig>(),
  }),
  authToken: endpoint("POST", "/api/v1/auth/token", {
    pool: "session",
    answer: json<{ readonly jwt: string }>(),
  }),
  /** Only the built-in backend has this endpoint. */
  revokeTokens: endpoint("DELETE", "/api/v1/auth/token", { answer: json<void>() }),
  describeKey: endpoint("GET", "/api/v1/auth/apikey/me", { answer: json<Service.KeyDescription>() }),
  deleteKey: endpoint("DELETE", "/api/v1/auth/apikey/me", { answer: json<void>() }),
  createSession: endpoint("POST", "/api/v1/create_session", {
    pool: "session",
    tag: "create_session",
    fields: {
      tags: f.withDefault(tags, []),
      userMetadata: f.optional(metadata),
      sdkVersion: f.withDefault(anyShortText, ""),
      projectId: f.optional(shortText),
      displayName: f.optional(f.tolerant(shortText, anyShortText)),
    },
    answer: json<{
      readonly sessionId: string;
      readonly infoMessage?: string | null;
      readonly warningMessage?: string | null;
      readonly errorMessage?: string | null;
    }>(),
  }),
  sessionHeartbeat: endpoint("POST", "/api/v1/session_heartbeat", {
    pool: "session",
    tag: "session_heartbeat",
    fields: { sessionId: f.text },
    answer: json<unknown>(),
  }),
  finishSession: endpoint("POST", "/api/v1/sessions/:sessionId/finish", {
    pool: "session",
    fields: {
      sessionId: f.text,
      reason: f.withDefault(f.message({ type: finishReason }), { type: "success" }),
      detail: f.optional(textUpTo(f.anyText, MAX_DETAIL)),
    },
    answer: json<void>(),
  }),
  telemetry: endpoint("POST", "/api/v1/telemetry", {
    pool: "telemetry",
    fields: {
      events: f.tolerant(
        f.list(wireJson<Service.TelemetryEvent>("an event")),
        f.list(f.opaque as f.Field<Service.TelemetryEvent>, { most: MAX_TELEMETRY_EVENTS }),
      ),
      platform: f.optional(f.anyText),
      sdkVersion: f.optional(f.anyText),
      sessionId: f.optional(f.anyText),
      processUuid: f.optional(f.anyText),
    },
    answer: json<{ readonly status: string }>(),
  }),
} as const;
