import type { Server as HttpServer } from "node:http";
import type { Socket } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import { TinkerError } from "../errors.js";
import { refuseForeignHost } from "../local/server/index.js";
import { closeHttp, listen } from "../local/socket.js";
import { systemClock } from "../transport/clock.js";
import { isLoopbackHost } from "../transport/request-encoding.js";
import { GatewayKeys } from "./access.js";
import type { Gateway, GatewayOptions } from "./gateway.js";
import { createGatewayApp } from "./gateway-app.js";
import { GatewayModels } from "./models.js";
import { GATEWAY_OPTIONS, SESSION_OPTIONS } from "./options.js";
import { FolderRecorder } from "./recording/recorder.js";
import { SessionRegistry } from "./session-registry.js";
import { UpstreamService } from "./upstream/service.js";

const MAX_UPLOAD_MS = 15 * 60_000;

/**
 * Starts a gateway: programs that speak OpenAI's or Anthropic's API use its address, and exactly the tokens sampled for
 * them can be trained on. Without API keys it listens only on this machine.
 */
export async function startGateway(options: GatewayOptions = {}): Promise<Gateway> {
  const settings = GATEWAY_OPTIONS.check(options, "startGateway");
  const { host, apiKeys, logger, clock = systemClock } = settings;
  if (settings.listen && apiKeys.length === 0 && !isLoopbackHost(host))
    throw new TinkerError(
      `Listening on ${host} lets other machines in, which needs an API key: give apiKeys, or leave host out to stay on this machine.`,
    );
  let url = "http://localhost";
  let isClosing = false;
  const recorder =
    settings.record === undefined
      ? undefined
      : await FolderRecorder.open({
          ...{ folder: settings.record, maxBytes: settings.maxRecordBytes, clock, logger },
        });
  const keys = new GatewayKeys(apiKeys, recorder?.sessionSecret, clock);
  const registry = new SessionRegistry({
    clock,
    baseURL: () => url,
    keyOf: (session) => keys.sessionKey(session),
    maxSessions: settings.maxSessions,
    maxSessionBytes: settings.maxSessionBytes,
    timeoutMs: settings.sessionTimeoutMs,
    recorder,
  });
  const models = new GatewayModels(settings);
  const app = createGatewayApp({
    clock,
    logger,
    keys,
    models,
    registry,
    upstream:
      settings.upstream === undefined
        ? undefined
        : new UpstreamService(settings.upstream, settings.upstreamApiKey),
    isClosing: () => isClosing,
  });
  let http: HttpServer | undefined;
  if (settings.listen) {
    http = createAdaptorServer({
      fetch: (request, { incoming }) =>
        (keys.keysRequired ? undefined : refuseForeignHost(request)) ??
        app.fetch(request, { address: incoming.socket.remoteAddress }),
    }) as HttpServer;
    http.requestTimeout = MAX_UPLOAD_MS;
    http.keepAliveTimeout = 60_000;
    http.on("connection", (socket: Socket) => socket.unref());
    const port = await listen(http, settings.port, host).catch(async (error: unknown) => {
      await registry.close();
      await recorder?.close();
      throw error;
    });
    url = `http://${host.includes(":") ? `[${host}]` : host === "0.0.0.0" ? "127.0.0.1" : host}:${port}`;
    if (options.port === undefined && options.host === undefined) http.unref();
  }
  let closing: Promise<void> | undefined;
  const closeAll = async () => {
    isClosing = true;
    await registry.close();
    if (http !== undefined) await closeHttp(http);
    await models.close();
    await recorder?.close();
  };
  const close = () => (closing ??= closeAll());
  return {
    url,
    fetch: async (input, init) => app.fetch(new Request(input, init), {}),
    session: (given = {}) => registry.create(SESSION_OPTIONS.check(given, "session")),
    sessions: () => registry.list(),
    get recording() {
      return recorder?.state;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}
