import type { ExchangeHook } from "../transport/index.js";

type Carrier = Pick<Headers, "set">;
type Setter = { set(carrier: Carrier, key: string, value: string): void };

/** The part of `@opentelemetry/api` used here; the package itself stays optional, its types too. */
interface OpenTelemetryApi {
  context: { active(): unknown };
  propagation: { inject(context: unknown, carrier: Carrier, setter: Setter): void };
}

const headerSetter: Setter = { set: (headers, key, value) => headers.set(key, value) };

/**
 * A hook that puts the active trace (`traceparent` and what else the application's propagator writes) on
 * every request; undefined when `@opentelemetry/api` is not installed.
 */
export async function loadTraceContextHook(): Promise<ExchangeHook | undefined> {
  const api = await importOpenTelemetry();
  if (api === undefined) return undefined;
  return {
    beforeSend: (headers) => api.propagation.inject(api.context.active(), headers, headerSetter),
  };
}

async function importOpenTelemetry(): Promise<OpenTelemetryApi | undefined> {
  // A specifier in a variable: bundlers must not fail on a package that need not be there.
  const specifier = "@opentelemetry/api";
  try {
    const module: unknown = await import(/* @vite-ignore */ /* webpackIgnore: true */ specifier);
    return module as OpenTelemetryApi;
  } catch {
    return undefined;
  }
}
