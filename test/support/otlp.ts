import { AsyncLocalStorage } from "node:async_hooks";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import {
  type Attributes,
  type Context,
  type ContextManager,
  context,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  type TextMapPropagator,
  TraceFlags,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";

/** A span as a collector gets it, in OTLP's JSON. */
export interface CollectedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly status: { readonly code?: number };
}

const storage = new AsyncLocalStorage<Context>();
const manager: ContextManager = {
  active: () => storage.getStore() ?? ROOT_CONTEXT,
  with: (active, fn, thisArg, ...args) => storage.run(active, () => fn.call(thisArg as never, ...args)),
  bind: (_active, target) => target,
  enable: () => manager,
  disable: () => manager,
};

/** W3C trace context, as applications have it. */
const propagator: TextMapPropagator = {
  inject(active, carrier, setter) {
    const span = trace.getSpanContext(active);
    if (span !== undefined) setter.set(carrier, "traceparent", `00-${span.traceId}-${span.spanId}-01`);
  },
  extract(active, carrier, getter) {
    const [, traceId, spanId] = String(getter.get(carrier, "traceparent") ?? "").split("-");
    if (!traceId || !spanId) return active;
    return trace.setSpanContext(active, { traceId, spanId, traceFlags: TraceFlags.SAMPLED, isRemote: true });
  },
  fields: () => ["traceparent"],
};

const hex = (bytes: number) =>
  Array.from({ length: bytes }, () =>
    Math.floor(Math.random() * 256)
      .toString(16)
      .padStart(2, "0"),
  ).join("");
const nanos = () => `${BigInt(Date.now()) * 1_000_000n + BigInt(Math.floor((performance.now() % 1) * 1e6))}`;
const otlpValue = (value: unknown): object =>
  Array.isArray(value)
    ? { arrayValue: { values: value.map(otlpValue) } }
    : typeof value === "number"
      ? Number.isInteger(value)
        ? { intValue: String(value) }
        : { doubleValue: value }
      : typeof value === "boolean"
        ? { boolValue: value }
        : { stringValue: String(value) };
const keyValues = (attributes: object) =>
  Object.entries(attributes).map(([key, value]) => ({ key, value: otlpValue(value) }));

/** A tracer that sends each span to a collector when it ends. */
function provider(send: (span: object) => void): TracerProvider {
  return {
    getTracer: () => ({
      startSpan(name, { kind = SpanKind.INTERNAL, attributes = {} } = {}, active = context.active()) {
        const parent = trace.getSpanContext(active);
        const own = { traceId: parent?.traceId ?? hex(16), spanId: hex(8), traceFlags: TraceFlags.SAMPLED };
        const values: Record<string, unknown> = { ...(attributes as Attributes) };
        const [startTimeUnixNano, status] = [nanos(), { code: 0 }];
        const span = {
          spanContext: () => own,
          setAttribute: (key: string, value: unknown) => {
            values[key] = value;
            return span;
          },
          setStatus: ({ code }: { code: number }) => {
            status.code = code;
            return span;
          },
          recordException: () => {},
          isRecording: () => true,
          end: () =>
            send({
              ...own,
              parentSpanId: parent?.spanId ?? "",
              // OTLP counts kinds from 1.
              ...{ name, kind: kind + 1, startTimeUnixNano, endTimeUnixNano: nanos(), status },
              attributes: keyValues(values),
            }),
        } as unknown as Span;
        return span;
      },
      startActiveSpan: () => {
        throw new Error("not used");
      },
    }),
  };
}

const plain = (value: Readonly<Record<string, unknown>>): unknown => {
  const [[kind, held] = []] = Object.entries(value);
  if (kind === "arrayValue") return (held as { values: Record<string, unknown>[] }).values.map(plain);
  return kind === "intValue" ? Number(held) : held;
};

/** An OTLP receiver, and an application's OpenTelemetry that reports to it. */
export async function startCollector() {
  const spans: CollectedSpan[] = [];
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (bytes) => (text += bytes));
    request.on("end", () => {
      const { resourceSpans } = JSON.parse(text);
      for (const { scopeSpans } of resourceSpans)
        for (const scope of scopeSpans)
          for (const span of scope.spans) {
            const attributes = span.attributes.map(({ key, value }: { key: string; value: never }) => [
              key,
              plain(value),
            ]);
            spans.push({ ...span, attributes: Object.fromEntries(attributes) });
          }
      response.setHeader("content-type", "application/json").end("{}");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/traces`;
  const sending = new Set<Promise<unknown>>();
  const send = (span: object) => {
    const scopeSpans = [{ scope: { name: "tinkerts" }, spans: [span] }];
    const resource = { attributes: keyValues({ "service.name": "test" }) };
    // Outside of any span, as exporters do it.
    const sent = storage.run(ROOT_CONTEXT, () =>
      fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ resourceSpans: [{ resource, scopeSpans }] }),
      }),
    );
    const done: Promise<unknown> = sent.finally(() => sending.delete(done));
    sending.add(done);
  };
  context.setGlobalContextManager(manager);
  propagation.setGlobalPropagator(propagator);
  trace.setGlobalTracerProvider(provider(send));
  return {
    /** All spans that have ended. */
    async spans(): Promise<readonly CollectedSpan[]> {
      while (sending.size > 0) await Promise.all(sending);
      return spans;
    },
    clear: () => void spans.splice(0),
    async close() {
      context.disable();
      propagation.disable();
      trace.disable();
      await Promise.all(sending);
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
