import { AsyncLocalStorage } from "node:async_hooks";
import {
  type Context,
  type ContextManager,
  context,
  propagation,
  ROOT_CONTEXT,
  type TextMapPropagator,
  TraceFlags,
  trace,
} from "@opentelemetry/api";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type ProtocolServer, startProtocolServer } from "../../test/support/protocol-server.js";
import { HttpClient } from "../transport/index.js";
import { Session } from "./session.js";

/** What an application brings along with its OpenTelemetry SDK, cut down to what propagation needs. */
function contextManager(): ContextManager {
  const storage = new AsyncLocalStorage<Context>();
  const manager: ContextManager = {
    active: () => storage.getStore() ?? ROOT_CONTEXT,
    with: (active, fn, thisArg, ...args) => storage.run(active, () => fn.call(thisArg as never, ...args)),
    bind: (_active, target) => target,
    enable: () => manager,
    disable: () => manager,
  };
  return manager;
}

const w3cPropagator: TextMapPropagator = {
  inject(active, carrier, setter) {
    const span = trace.getSpanContext(active);
    if (span === undefined) return;
    const flags = span.traceFlags.toString(16).padStart(2, "0");
    setter.set(carrier, "traceparent", `00-${span.traceId}-${span.spanId}-${flags}`);
  },
  extract: (active) => active,
  fields: () => ["traceparent"],
};

const spanContext = (spanId: string) => ({
  traceId: "0af7651916cd43dd8448eb211c80319c",
  spanId,
  traceFlags: TraceFlags.SAMPLED,
});

describe("trace propagation with the real @opentelemetry/api", () => {
  let server: ProtocolServer;

  beforeAll(async () => {
    context.setGlobalContextManager(contextManager());
    propagation.setGlobalPropagator(w3cPropagator);
    server = await startProtocolServer();
  });

  afterAll(async () => {
    context.disable();
    propagation.disable();
    await server.close();
  });

  it("puts the caller's own span on each of its requests, start-up included, and none outside of spans", async () => {
    const http = new HttpClient({ baseURL: server.url, apiKey: "tml-key" });
    const inSpan = <T>(spanId: string, fn: () => Promise<T>) =>
      context.with(trace.setSpanContext(ROOT_CONTEXT, spanContext(spanId)), fn);
    server.on("GET /api/v1/probe/*", { json: {} });

    const session = await inSpan("aaaaaaaaaaaaaaaa", () => Session.open(http));
    await Promise.all([
      inSpan("bbbbbbbbbbbbbbbb", async () => http.get("/api/v1/probe/b")),
      inSpan("cccccccccccccccc", async () => http.get("/api/v1/probe/c")),
      http.get("/api/v1/probe/none"),
    ]);
    await session.close();

    const traceOf = (path: string) =>
      server.requests.find((request) => request.path === path)?.headers["traceparent"];
    expect(traceOf("/api/v1/client/config")).toBe("00-0af7651916cd43dd8448eb211c80319c-aaaaaaaaaaaaaaaa-01");
    expect(traceOf("/api/v1/create_session")).toBe("00-0af7651916cd43dd8448eb211c80319c-aaaaaaaaaaaaaaaa-01");
    expect(traceOf("/api/v1/probe/b")).toBe("00-0af7651916cd43dd8448eb211c80319c-bbbbbbbbbbbbbbbb-01");
    expect(traceOf("/api/v1/probe/c")).toBe("00-0af7651916cd43dd8448eb211c80319c-cccccccccccccccc-01");
    expect(server.requestsTo("GET /api/v1/probe/none")).toHaveLength(1);
    expect(traceOf("/api/v1/probe/none")).toBeUndefined();
  });
});
