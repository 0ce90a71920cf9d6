import type { ApiRequest, ApiResponse, HttpClient } from "../transport/index.js";
import { DEFAULT_CLIENT_CONFIG } from "../wire/index.js";
import { BillingPause } from "./billing-pause.js";

/** One of a client's first requests: waits out a billing pause as the later ones do, under the default settings. */
export function startupExchange(http: HttpClient, request: ApiRequest): Promise<ApiResponse> {
  const maxPauseMs = DEFAULT_CLIENT_CONFIG.billingExceptionMaxPauseDurationSec * 1000;
  const billing = new BillingPause({ clock: http.clock, logger: http.logger, maxPauseMs });
  return billing.outlast(() => http.exchange({ ...request, expect: "json" }), request.signal);
}
