import type { ExchangeHook } from "../transport/index.js";
import { injectTrace, loadOpenTelemetry } from "./spans.js";

/**
 * A hook that puts the active trace (`traceparent` and what else the application's propagator writes) on
 * every request; undefined when `@opentelemetry/api` is not installed.
 */
export async function loadTraceContextHook(): Promise<ExchangeHook | undefined> {
  if ((await loadOpenTelemetry()) === undefined) return undefined;
  return { beforeSend: (headers) => injectTrace(headers) };
}
