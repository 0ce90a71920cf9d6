import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";
import { systemClock } from "../transport/clock.js";
import type { HttpClient } from "../transport/index.js";
import { encodeRequest, endpoints } from "../wire/index.js";
import {
  type Beat,
  HEARTBEAT_INTERVAL_MS,
  HEARTBEAT_TIMEOUT_MS,
  type HeartbeatLoop,
  type HeartbeatOptions,
  startHeartbeat as startTimerHeartbeat,
} from "./heartbeat-loop.js";

/**
 * The thread that sends. Plain source text, because a worker file would have to be found from dist, from
 * sources and from a user's bundle alike. It mirrors heartbeat-loop.ts, with `fetch` in place of HttpClient.
 */
const WORKER_SOURCE = `
const { parentPort, workerData } = require("node:worker_threads");
const { url, body, intervalMs, timeoutMs, undiciPath } = workerData;
let headers = workerData.headers;
let send = fetch;
let dispatcher;
if (undiciPath !== undefined) {
  const undici = require(undiciPath);
  send = undici.fetch;
  dispatcher = new undici.EnvHttpProxyAgent({ proxyTunnel: false });
}
let lastSuccessMs = performance.now();
parentPort.on("message", (fresh) => { headers = fresh; });

async function beat() {
  const startedMs = performance.now();
  let status = null;
  let reason;
  try {
    const response = await send(url, {
      method: "POST",
      headers: { ...headers, "x-idempotency-key": crypto.randomUUID() },
      body,
      redirect: "manual",
      signal: AbortSignal.timeout(timeoutMs),
      ...(dispatcher && { dispatcher }),
    });
    const text = await response.text();
    status = response.status;
    // HttpClient knows where a key may follow a redirect: leave it to the timer loop.
    if (status >= 300 && status < 400) return parentPort.close();
    if (!response.ok) reason = "status " + status + (text === "" ? "" : ": " + text.slice(0, 500));
  } catch (error) {
    reason = String(error?.cause?.message ?? error?.message ?? error);
  }
  const endedMs = performance.now();
  if (reason === undefined) lastSuccessMs = endedMs;
  parentPort.postMessage({ status, reason, durationMs: endedMs - startedMs, failedForMs: endedMs - lastSuccessMs });
  if (status === 410) return parentPort.close();
  setTimeout(beat, Math.max(0, startedMs + intervalMs - endedMs));
}
setTimeout(beat, intervalMs);
`;

/** Heartbeats from a thread of their own, so that a blocked event loop does not cost the session. */
export async function startHeartbeat(options: HeartbeatOptions): Promise<HeartbeatLoop> {
  const { http, sessionId } = options;
  // An injected fetch or clock must see every request, and neither can be handed to another thread.
  if (http.hasCustomFetch || http.clock !== systemClock) return startTimerHeartbeat(options);

  let headers = await threadHeaders(http).catch(() => undefined);
  if (headers === undefined) return startTimerHeartbeat(options);
  const { path, json } = encodeRequest(endpoints.sessionHeartbeat, { sessionId });
  const body = JSON.stringify(json);
  const worker = tryStartWorker({
    url: `${http.baseURL}${path}`,
    body,
    headers,
    intervalMs: options.intervalMs ?? HEARTBEAT_INTERVAL_MS,
    timeoutMs: options.timeoutMs ?? HEARTBEAT_TIMEOUT_MS,
    undiciPath: usesProxy() ? undiciPath() : undefined,
  });
  if (worker === undefined) return startTimerHeartbeat(options);

  let ended = false;
  let fallback: Promise<HeartbeatLoop> | undefined;

  worker.on("message", (beat: Beat) => {
    if (ended) return;
    if (beat.status === 410) ended = true;
    reportExchange(http, beat, body.length);
    options.onBeat(beat);
    void shareCredential();
  });
  worker.on("error", (error) => http.logger.debug(`the heartbeat thread failed: ${error.message}`));
  worker.on("exit", () => {
    if (!ended) fallback = startTimerHeartbeat(options);
  });
  worker.unref();

  /** The thread cannot renew a credential: it gets each new one within a beat of its arrival. */
  async function shareCredential(): Promise<void> {
    const fresh = await threadHeaders(http).catch(() => headers);
    if (ended || fresh?.[CREDENTIAL_HEADER] === headers?.[CREDENTIAL_HEADER]) return;
    headers = fresh;
    worker?.postMessage(headers);
  }

  return {
    async stop() {
      ended = true;
      await (await fallback)?.stop();
      await worker.terminate();
    },
  };
}

const CREDENTIAL_HEADER = "x-api-key";

async function threadHeaders(http: HttpClient): Promise<Record<string, string>> {
  return { ...Object.fromEntries(await http.requestHeaders()), "content-type": "application/json" };
}

/** Hooks of the client see these requests as well. */
function reportExchange(http: HttpClient, beat: Beat, requestBytes: number): void {
  for (const hook of http.hooks) {
    hook.afterExchange?.({
      pool: "session",
      method: "POST",
      path: endpoints.sessionHeartbeat.path,
      status: beat.status,
      durationMs: beat.durationMs,
      attempt: 0,
      requestBytes,
      responseBytes: 0,
    });
  }
}

function tryStartWorker(workerData: object): Worker | undefined {
  try {
    return new Worker(WORKER_SOURCE, { eval: true, workerData, execArgv: [], name: "tinkerts-heartbeat" });
  } catch {
    return undefined;
  }
}

function usesProxy(): boolean {
  return ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"].some((name) => process.env[name]);
}

function undiciPath(): string | undefined {
  try {
    return createRequire(import.meta.url).resolve("undici");
  } catch {
    return undefined;
  }
}
