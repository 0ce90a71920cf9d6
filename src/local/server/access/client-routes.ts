import { endpoints } from "../../../wire/endpoints/index.js";
import type { ClientConfig } from "../../../wire/records/session-types.js";
import { HttpError } from "../http/http-error.js";
import type { Route } from "../http/route.js";
import type { Services } from "../services.js";

/** Start-up of a client: models, configuration, tokens, telemetry. */
export function addClientRoutes(route: Route, services: Services): void {
  const { baseModels, identities, clientConfig } = services;

  route(endpoints.getServerCapabilities, () => ({
    supportedModels: [...baseModels.values()].map(({ name, maxContextLength }) => ({
      modelName: name,
      maxContextLength,
      trainable: true,
      sampleable: true,
    })),
  }));
  route(endpoints.clientConfig, () => clientConfig as ClientConfig);
  route(endpoints.dynamicConfig, () => ({
    refreshIntervalSec: 300,
    sampleCancelEnabled: true,
    sampleCancelMaxBatchSize: 64,
  }));
  route(endpoints.authToken, (_, call) => ({ jwt: identities.exchange(call) }));
  route(endpoints.revokeTokens, (_, call) => identities.revokeTokens(call.get("identity")));
  route(endpoints.describeKey, (_, call) => {
    const { owner } = call.get("identity");
    const keyId = Number.parseInt(/^key-([0-9a-f]{8})/.exec(owner)?.[1] ?? "0", 16);
    return {
      keyId,
      name: owner,
      note: "a key of a tinkerts server",
      details: { orgDetails: { name: "local" }, userDetails: { email: `${owner}@localhost` } },
    };
  });
  route(endpoints.deleteKey, () => {
    throw new HttpError(
      403,
      "The keys of this server are set where it is started and cannot be deleted by a client.",
    );
  });
  route(endpoints.telemetry, () => ({ status: "accepted" }));
}
