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

/** One thing that was looked at. */
export interface Check {
  readonly name: string;
  /** "skipped" where it makes no sense because another one failed. */
  readonly status: "ok" | "failed" | "skipped";
  /** What was found, or what is wrong and what to do. */
  readonly detail: string;
  /** The same for programs, where it is more than that. */
  readonly facts?: object;
}

/** As package.json says. */
export const MIN_NODE = "20.18.1";
/** A server that knows the time of a token would refuse one from further away. */
const MAX_SKEW_S = 60;
const PATIENCE_MS = 10_000;

const COLUMNS: readonly Column<Check>[] = [
  { header: "Check", name: "name", value: ({ name }) => name },
  { header: "Status", name: "status", value: ({ status }) => status },
  { header: "Detail", name: "detail", value: ({ detail }) => detail },
];

export const define: CommandModule["define"] = (command, context) => {
  command
    // How it looks at the card in a process of its own.
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

/** Looks at everything a program with the SDK needs, one thing after the other; each is told as soon as it is known. */
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
  // Whether a server is there can be told without a key.
  const http = new HttpClient({ baseURL: globals.baseURL, apiKey: () => "" });
  const server = await attempt("Server", async () => {
    const health = {
      ...request,
      method: "GET",
      path: "/api/v1/healthz",
      pool: "session",
      auth: noAuth,
    } as const;
    // The first exchange makes the connection; the second tells how far away the server is.
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

/** Throws for a Node that is too old. */
export function checkNode(version: string): string {
  const order = (text: string) =>
    text.split(".").reduce((sum, part) => 1000 * sum + Number.parseInt(part, 10), 0);
  if (order(version) < order(MIN_NODE)) {
    throw new Error(`${version} is too old: install ${MIN_NODE} or newer from https://nodejs.org`);
  }
  return version;
}

/** Never the key itself. */
async function checkKey(context: CommandContext): Promise<string> {
  await context.restClient();
  const auth = credentialOf(context.globals());
  await auth.token();
  return auth.source === undefined || auth.source === "none"
    ? "none, and none is needed for a server of your own"
    : CREDENTIAL_PLACES[auth.source];
}

/** How far this clock is from the server's; throws where that is too far. */
export function describeSkew(date: string | null, nowMs: number): string {
  if (date === null) return "the server does not tell the time";
  // The header knows whole seconds only.
  const seconds = Math.round((nowMs - Date.parse(date)) / 1000 - 0.5);
  const distance = Math.abs(seconds);
  const text = `${distance} s ${seconds < 0 ? "behind" : "ahead of"} the server's`;
  if (distance > MAX_SKEW_S) {
    throw new Error(`this machine's clock is ${text}: set it, or let the system do so (NTP)`);
  }
  return distance <= 2 ? "the same as the server's" : text;
}

const SHOWN_MODELS = 3;

function describeModels(names: readonly string[]): string {
  if (names.length === 0) throw new Error("the server offers none: ask whoever runs it");
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
