import type { Platform } from "../transport/platform-types.js";

/** Values of a span's attributes. */
export type SpanAttributes = Readonly<
  Record<string, string | number | boolean | readonly string[] | undefined>
>;

/** Kind of a span, for timelines and the seconds of a step. */
export type SpanCategory = "step" | "sample" | "train" | "rollout" | "environment" | "evaluate" | "save";

/** How a piece of work is described. */
export interface SpanOptions {
  readonly kind?: "client" | "server" | "internal" | undefined;
  readonly category?: SpanCategory | undefined;
  readonly attributes?: SpanAttributes | undefined;
}

/** A piece of work under way. */
export interface OpenSpan {
  set(attributes: SpanAttributes): void;
}

/** Called when a span begins; the returned function is called at its end. */
export type SpanObserver = (
  name: string,
  options: SpanOptions,
) => (attributes: SpanAttributes, error: unknown) => void;

interface ApiSpan {
  setAttribute(name: string, value: unknown): unknown;
  setStatus(status: { code: number; message?: string }): unknown;
  recordException(error: unknown): void;
  end(): void;
}

type Carrier = Pick<Headers, "set">;

/** The part of `@opentelemetry/api` used here; the package itself stays optional, its types too. */
interface OpenTelemetryApi {
  context: { active(): unknown; with<T>(context: unknown, work: () => T): T };
  trace: {
    getTracer(
      name: string,
      version?: string,
    ): {
      startSpan(name: string, options: { kind: number; attributes: object }, context?: unknown): ApiSpan;
    };
    setSpan(context: unknown, span: ApiSpan): unknown;
  };
  propagation: {
    inject(
      context: unknown,
      carrier: Carrier,
      setter: { set(carrier: Carrier, key: string, value: string): void },
    ): void;
    extract(
      context: unknown,
      carrier: Headers,
      getter: { get(headers: Headers, key: string): string | undefined; keys(headers: Headers): string[] },
    ): unknown;
  };
}

/** OpenTelemetry's numbers for kinds of spans, and for a status of an error. */
const KINDS = { internal: 0, server: 1, client: 2 };
const ERROR = 2;

let api: OpenTelemetryApi | undefined;
let loading: Promise<OpenTelemetryApi | undefined> | undefined;
let observerOf: () => SpanObserver | undefined = () => undefined;

/** Loads `@opentelemetry/api` if it is installed; without it there are no spans. */
export function loadOpenTelemetry(): Promise<OpenTelemetryApi | undefined> {
  loading ??= importApi().then((loaded) => {
    api = loaded;
    return loaded;
  });
  return loading;
}

async function importApi(): Promise<OpenTelemetryApi | undefined> {
  // A specifier in a variable: bundlers must not fail on a package that need not be there.
  const specifier = "@opentelemetry/api";
  try {
    return (await import(/* @vite-ignore */ /* webpackIgnore: true */ specifier)) as OpenTelemetryApi;
  } catch {
    return undefined;
  }
}

/** Lets another listener see the spans, such as the timeline of the run that they belong to. */
export function observeSpans(find: () => SpanObserver | undefined): void {
  observerOf = find;
}

/** Whether spans may hold what was said, as OpenTelemetry's variable for it asks. */
export function capturesContent(platform: Pick<Platform, "env">): boolean {
  return /^(?:true|1)$/i.test(platform.env("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT") ?? "");
}

/** Puts the active trace (`traceparent` and what else the application's propagator writes) on a request. */
export function injectTrace(headers: Carrier): void {
  api?.propagation.inject(api.context.active(), headers, {
    set: (carrier, key, value) => carrier.set(key, value),
  });
}

/** Does work as a part of the trace that a request names, if it names one. */
export function inTraceOf<T>(headers: Headers, work: () => T): T {
  if (api === undefined) return work();
  const context = api.propagation.extract(api.context.active(), headers, {
    get: (carrier, key) => carrier.get(key) ?? undefined,
    keys: (carrier) => [...carrier.keys()],
  });
  return api.context.with(context, work);
}

/** Does a piece of work in a span of the application's tracer, as a child of the active one. */
export async function inSpan<T>(
  name: string,
  options: SpanOptions,
  work: (span: OpenSpan) => Promise<T>,
): Promise<T> {
  const endObserved = observerOf()?.(name, options);
  const span = startSpan(name, options);
  if (endObserved === undefined && span === undefined) return work(NO_SPAN);
  let attributes: SpanAttributes = {};
  const open: OpenSpan = {
    set(more) {
      attributes = { ...attributes, ...more };
      for (const [key, value] of Object.entries(more))
        if (value !== undefined) span?.setAttribute(key, value);
    },
  };
  try {
    const result = await (span === undefined
      ? work(open)
      : api!.context.with(api!.trace.setSpan(api!.context.active(), span), () => work(open)));
    endObserved?.(attributes, undefined);
    return result;
  } catch (error) {
    const type = error instanceof Error ? error.name : typeof error;
    span?.setAttribute("error.type", type);
    span?.recordException(error);
    span?.setStatus({ code: ERROR, message: error instanceof Error ? error.message : String(error) });
    endObserved?.(attributes, error);
    throw error;
  } finally {
    span?.end();
  }
}

const NO_SPAN: OpenSpan = { set: () => {} };

function startSpan(name: string, { kind = "internal", attributes = {} }: SpanOptions): ApiSpan | undefined {
  const defined = Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));
  return api?.trace.getTracer("tinkerts").startSpan(name, { kind: KINDS[kind], attributes: defined });
}
