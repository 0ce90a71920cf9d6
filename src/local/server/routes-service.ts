import { z } from "zod";
import { jsonBody } from "./body.js";
import { type App, type Core, textMetadata } from "./core.js";
import { HttpError } from "./http-error.js";
import * as schemas from "./schemas.js";

const FINGERPRINT_LENGTH = 16;

/** Start-up of a client: health, configuration, tokens, sessions and their heartbeats, telemetry. */
export function addServiceRoutes(app: App, core: Core): void {
  app.get("/api/v1/get_server_capabilities", (context) =>
    context.json({
      supported_models: [...core.models.values()].map((model) => ({
        model_name: model.name,
        max_context_length: model.maxContextLength,
        trainable: true,
        sampleable: true,
      })),
    }),
  );

  app.post("/api/v1/client/config", (context) => context.json(core.clientConfig));

  app.post("/api/v1/client/dynamic_config", (context) =>
    context.json({
      refresh_interval_sec: 300,
      sample_cancel_enabled: true,
      sample_cancel_max_batch_size: 64,
    }),
  );

  app.post("/api/v1/auth/token", (context) =>
    context.json({ jwt: core.identities.issueToken(context.get("identity")) }),
  );

  app.get("/api/v1/auth/apikey/me", (context) => {
    const { owner } = context.get("identity");
    const keyId = Number.parseInt(owner.slice("key-".length, "key-".length + FINGERPRINT_LENGTH / 2), 16);
    return context.json({
      key_id: Number.isNaN(keyId) ? 0 : keyId,
      name: owner,
      note: "a key of a tinkerts server",
      details: { org_details: { name: "local" }, user_details: { email: `${owner}@localhost` } },
    });
  });

  app.delete("/api/v1/auth/apikey/me", () => {
    throw new HttpError(
      403,
      "The keys of this server are set where it is started and cannot be deleted by a client.",
    );
  });

  app.post("/api/v1/telemetry", async (context) => {
    await jsonBody(context, core, schemas.telemetry);
    return context.json({ status: "accepted" });
  });

  app.post("/api/v1/create_custom_loss", () => {
    throw new HttpError(422, [
      {
        loc: ["body", "graph"],
        msg: "This server stores no losses: custom losses run in the client (custom_loss_server_side is false).",
        type: "value_error",
      },
    ]);
  });

  app.post("/api/v1/create_session", async (context) => {
    const request = await jsonBody(context, core, schemas.createSession);
    const session = await core.sessions.open(context.get("identity"), {
      tags: request.tags,
      userMetadata: textMetadata(request.user_metadata),
      sdkVersion: request.sdk_version,
      projectId: request.project_id ?? null,
      displayName: request.display_name ?? null,
    });
    return context.json({ type: "create_session", session_id: session.record.id });
  });

  app.post("/api/v1/session_heartbeat", async (context) => {
    const request = await jsonBody(context, core, z.object({ session_id: z.string() }));
    core.sessions.use(context.get("identity"), request.session_id);
    return context.json({ type: "session_heartbeat" });
  });
}
