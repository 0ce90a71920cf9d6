import { availableParallelism, totalmem } from "node:os";
import { Option } from "commander";
import type { ServiceClient } from "tinkerts";
import { HttpClient, noAuth } from "../../transport/index.js";
import { encodeRequest, endpoints } from "../../wire/index.js";
import type { CommandContext, CommandModule } from "../context.js";
import { CREDENTIAL_PLACES, credentialOf } from "../credential.js";
import { findGpu, printGpu } from "../doctor/graphics-card.js";
import { explainFailure } from "../failure.js";
import { type Column, humanBytes, printable, printList, stylesFor, wrapText } from "../output/index.js";

/** Result of one check. */
export interface Check {
  readonly name: string;
  /** "skipped" if it makes no sense because an earlier check failed. */
  readonly status: "ok" | "failed" | "skipped";
  /** The finding, or the problem and the next step. */
  readonly detail: string;
  /** The finding as JSON, if it contains more than the text. */
  readonly facts?: object;
}

/** Oldest Node version, as in package.json. */
export const MIN_NODE = "20.18.1";
/** A server that checks token times would refuse tokens from a clock further off. */
const MAX_SKEW_S = 60;
const PATIENCE_MS = 10_000;

const COLUMNS: readonly Column<Check>[] = [
  { header: "Check", name: "name" },
  { header: "Status", name: "status" },
  { header: "Detail", name: "detail" },
];

export const define: CommandModule["define"] = (command, context) => {
  command
    // How `doctor` looks at the GPU from a separate process.
    .addOption(new Option("--gpu-alone").hideHelp())
    .action(({ gpuAlone }: { readonly gpuAlone?: true }) => (gpuAlone ? printGpu(context) : doctor(context)));
};

async function doctor(context: CommandContext): Promise<void> {
  const { format } = context.globals();
  const checks: Check[] = [];
  for await (const check of runChecks(context)) {
    checks.push(check);
    if (format === "table") context.stdout.write(`${line(check, context)}\n`);
  }
  const failed = checks.filter(({ status }) => status === "failed");
  if (format !== "table") {
    printList(context, checks, { columns: COLUMNS, empty: "", json: { ok: failed.length === 0, checks } });
  }
  if (failed.length > 0) throw new Error(`not all is well: ${failed.map(({ name }) => name).join(", ")}`);
}

function line({ name, status, detail }: Check, context: CommandContext): string {
  const { green, red, dim } = stylesFor(context, context.stdout);
  const style = { ok: green, failed: red, skipped: dim }[status];
  const indent = 18;
  const width = context.stdout.isTTY ? (context.stdout.columns || 80) - indent : Number.POSITIVE_INFINITY;
  const lines = wrapText(printable(detail), width).replaceAll("\n", `\n${" ".repeat(indent)}`);
  return `${style(status.padEnd(7))}  ${name.padEnd(7)}  ${lines}`;
}

/** Checks everything that a program with the SDK needs, and prints each finding at once. */
export async function* runChecks(context: CommandContext): AsyncGenerator<Check> {
  const globals = context.globals();
  const request = {
    signal: context.interruption(),
    timeout: globals.timeoutMs ?? PATIENCE_MS,
    maxRetries: 0,
  };
  const attempt = async (name: string, look: () => Promise<string>): Promise<Check> => {
    try {
      return { name, status: "ok", detail: await look() };
    } catch (error) {
      request.signal.throwIfAborted();
      return { name, status: "failed", detail: explainFailure(error, globals) };
    }
  };
  const skipped = (name: string, why: string): Check => ({ name, status: "skipped", detail: why });

  yield await attempt("Node", async () => checkNode(process.versions.node));
  yield await attempt("Machine", async () => {
    const { platform, arch } = process;
    return `${platform} ${arch}, ${availableParallelism()} threads, ${humanBytes(totalmem())} of memory`;
  });
  yield await findGpu(request.signal);

  const key = await attempt("API key", () => checkKey(context));
  yield key;

  let skew: Check | undefined;
  // A server can be reached without a key.
  const http = new HttpClient({ baseURL: globals.baseURL, apiKey: () => "" });
  const server = await attempt("Server", async () => {
    const health = {
      ...request,
      method: "GET",
      path: "/api/v1/healthz",
      pool: "session",
      auth: noAuth,
    } as const;
    // The first request opens the connection; the second measures the latency.
    await http.exchange(health);
    const started = performance.now();
    const { headers } = await http.exchange(health);
    const elapsedMs = performance.now() - started;
    const date = headers.get("date");
    skew = await attempt("Clock", async () => describeSkew(date, Date.now() - elapsedMs / 2));
    return `${http.baseURL} answered in ${Math.round(elapsedMs)} ms`;
  });
  await http.close();
  yield server;
  yield skew ?? skipped("Clock", "needs the server");

  const missing = [server, key].find(({ status }) => status === "failed");
  if (missing !== undefined) {
    const why = `needs the ${missing === key ? "key" : "server"}`;
    yield skipped("Models", why);
    yield skipped("Session", why);
    return;
  }
  const service = await context.serviceClient();
  const models = await attempt("Models", async () => {
    const { supportedModels } = await service.getServerCapabilities(request);
    return describeModels(supportedModels.map(({ modelName }) => modelName ?? "unnamed"));
  });
  yield models;
  yield models.status === "failed"
    ? skipped("Session", "needs a server that answers")
    : await attempt("Session", () => checkSession(service, request));
}

/** Throws if Node is too old. */
export function checkNode(version: string): string {
  const order = (text: string) =>
    text.split(".").reduce((sum, part) => 1000 * sum + Number.parseInt(part, 10), 0);
  if (order(version) < order(MIN_NODE)) {
    throw new Error(`${version} is too old: install ${MIN_NODE} or newer from https://nodejs.org`);
  }
  return version;
}

/** Source of the credential, never the key itself. */
async function checkKey(context: CommandContext): Promise<string> {
  await context.restClient();
  const auth = credentialOf(context.globals());
  await auth.token();
  return auth.source === undefined || auth.source === "none"
    ? "none, and none is needed for a server of your own"
    : CREDENTIAL_PLACES[auth.source];
}

/** Difference between this clock and the server's; throws if it is too large. */
export function describeSkew(date: string | null, nowMs: number): string {
  if (date === null) return "the server sends no time";
  // The header has whole seconds only.
  const seconds = Math.round((nowMs - Date.parse(date)) / 1000 - 0.5);
  const distance = Math.abs(seconds);
  const text = `${distance} s ${seconds < 0 ? "behind" : "ahead of"} the server's`;
  if (distance > MAX_SKEW_S) {
    throw new Error(`this machine's clock is ${text}: set it, or turn on NTP`);
  }
  return distance <= 2 ? "the same as the server's" : text;
}

const SHOWN_MODELS = 3;

function describeModels(names: readonly string[]): string {
  if (names.length === 0) throw new Error("the server offers none: ask its operator");
  const rest = names.length - SHOWN_MODELS;
  const shown = names.slice(0, SHOWN_MODELS).join(", ");
  return rest > 0 ? `${shown} and ${rest} more (see tinkerts models)` : shown;
}

async function checkSession(
  service: ServiceClient,
  request: { signal: AbortSignal; timeout: number },
): Promise<string> {
  const started = performance.now();
  const sessionId = await service.getSessionId();
  const { path, json } = encodeRequest(endpoints.sessionHeartbeat, { sessionId });
  await service.post(path, { ...request, body: json });
  return `opened and alive in ${Math.round(performance.now() - started)} ms`;
}
