import { InvalidArgumentError } from "commander";
import type { ServiceClient } from "tinkerts";
import type { Dashboard } from "../../dashboard/index.js";
import { defaultModel, type LocalModel } from "../../local/default-model.js";
import type { ModelSource } from "../../local/model-source.js";
import type { LocalBackend, LocalBackendOptions } from "../../local/start.js";
import { CREATED_BY } from "../clients.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { builtInServer } from "../dashboard.js";
import { addDeviceOptions, type DeviceOptions, describeDevice } from "../device-options.js";
import { gathered, wholeNumber } from "../option-values.js";

const DASHBOARD_PATH = "/dashboard";

interface ServeOptions extends DeviceOptions {
  readonly port: number;
  readonly host: string;
  readonly dataDir: string;
  readonly model?: readonly ModelSource[];
  readonly nano: boolean;
  readonly apiKey?: readonly string[];
  readonly tokens?: boolean;
  readonly threads?: number;
  readonly cors?: readonly string[];
  readonly runs?: readonly string[];
  readonly quiet?: boolean;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .option("--port <number>", "where to listen; 0 takes a free port", wholeNumber(0, 65_535), 8642)
    .option("--host <address>", "who may connect: an address of this machine", "127.0.0.1")
    .option("--data-dir <folder>", "where runs and checkpoints are kept", ".tinkerts")
    .option(
      "--model <model>",
      `a Hugging Face id, a folder, or NAME=FOLDER, besides ${defaultModel.name}; may be repeated`,
      gathered(readModel),
    )
    .option("--no-nano", `without ${defaultModel.name}`)
    .option(
      "--api-key <key>",
      "a key (tml-...) that clients must send; may be repeated",
      gathered((key) => key),
    )
    .option("--tokens", "let clients exchange their key for tokens that end after an hour");
  addDeviceOptions(command)
    .option(
      "--threads <number>",
      "threads for computing on the CPU (default: one per core, at most 8)",
      wholeNumber(1, 64),
    )
    .option(
      "--cors <origin>",
      "let pages of this web origin in, besides those of this machine; may be repeated",
      gathered(readOrigin),
    )
    .option(
      "--runs <folder>",
      "where the dashboard looks for runs (default: this folder); may be repeated",
      gathered(String),
    )
    .option("--quiet", "print nothing but the address")
    .action((options: ServeOptions) => serve(options, context));
};

async function serve(
  {
    port,
    host,
    dataDir,
    model: given = [],
    nano,
    apiKey: apiKeys = [],
    tokens = false,
    device,
    precision,
    threads,
    cors: corsOrigins = [],
    runs = ["."],
    quiet = false,
  }: ServeOptions,
  context: CommandContext,
): Promise<void> {
  const { stdout } = context;
  const { isLoopback } = await import("../../local/start.js");
  const { modelCheck } = await import("../../local/engine/start-engine.node.js");
  const { createDashboard } = await import("../../dashboard/index.js");
  if (apiKeys.length === 0 && !isLoopback(host)) {
    throw new UsageError(
      `listening on ${host} lets other machines in, which needs an API key: give --api-key, or leave --host out to stay on this machine`,
    );
  }
  const sources = modelSources(given, nano);
  const interrupted = context.interruption();
  const { findModel } = await import("./find-model.js");
  const models: LocalModel[] = [];
  // One after the other: there is one line to show a download in.
  for (const source of sources) models.push(await findModel(context, source, modelCheck(device)));
  const where = { port, host, dataDir, corsOrigins };
  let dashboard: Dashboard | undefined;
  const beside = (request: Request) => (isAtDashboard(request) ? dashboard?.fetch(request) : undefined);
  const computing = { device, precision, ...(threads && { threads }) };
  const backend = await start({ ...where, ...computing, models, apiKeys, tokens, beside });
  let endShow = () => {};
  let service: ServiceClient | undefined;
  const server = builtInServer(backend, async () => {
    const { ServiceClient } = await import("tinkerts");
    service ??= new ServiceClient({ ...backend, userMetadata: { [CREATED_BY]: "tinkerts serve" } });
    return service;
  });
  try {
    // Nothing of it is for other machines.
    if (isLoopback(host)) dashboard = createDashboard({ folders: runs, server, basePath: DASHBOARD_PATH });
    if (!quiet) {
      context.notify(`Serving ${models.map(({ name }) => name).join(", ")} at ${backend.baseURL}`);
      context.notify(describeDevice(backend.device));
      context.notify(`Runs and checkpoints are kept in ${backend.dataDir}. Ctrl-C ends the server.`);
      if (dashboard !== undefined)
        context.notify(`The dashboard is at ${backend.baseURL}${DASHBOARD_PATH}/#token=${dashboard.token}`);
      context.notify("To use it from another terminal:\n");
    }
    stdout.write(`export TINKER_BASE_URL=${backend.baseURL}\n`);
    // A server with keys of its own does not show them.
    stdout.write(`export TINKER_API_KEY=${apiKeys.length === 0 ? backend.apiKey : "'one of your keys'"}\n`);
    if (!quiet) {
      const { showActivity } = await import("../serve/show-activity.js");
      if (context.stderr.isTTY) context.stderr.write("\n");
      endShow = showActivity(backend.activity, context.stderr);
    }
    await new Promise<void>((resolve) => {
      if (interrupted.aborted) resolve();
      interrupted.addEventListener("abort", () => resolve(), { once: true });
    });
  } finally {
    endShow();
    dashboard?.close();
    await service?.close();
    await backend.close();
  }
}

function isAtDashboard(request: Request): boolean {
  return `${new URL(request.url).pathname}/`.startsWith(`${DASHBOARD_PATH}/`);
}

/** The model of the package is there unless it is declined, or given in another shape. */
function modelSources(given: readonly ModelSource[], nano: boolean): readonly ModelSource[] {
  const isGiven = given.some(
    (source) => defaultModel.name === (typeof source === "string" ? source : source.name),
  );
  if (nano && !isGiven) return [defaultModel, ...given];
  if (given.length > 0) return given;
  throw new UsageError("--no-nano leaves no model to serve: give --model");
}

async function start(options: LocalBackendOptions): Promise<LocalBackend> {
  const { startLocalBackend } = await import("../../local/start.js");
  try {
    return await startLocalBackend(options);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EADDRINUSE") {
      throw new Error(`port ${options.port} is taken: give another with --port, or 0 for any free one`);
    }
    if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND") {
      throw new Error(
        `${options.host} is not an address of this machine: give another --host, or leave it out`,
      );
    }
    throw error;
  }
}

function readModel(text: string): ModelSource {
  const at = text.indexOf("=");
  if (at < 0) return text;
  const [name, path] = [text.slice(0, at), text.slice(at + 1)];
  if (name === "" || path === "") throw new InvalidArgumentError("It must be NAME=FOLDER.");
  return { name, path };
}

function readOrigin(text: string): string {
  if (text === "*" || (URL.canParse(text) && new URL(text).origin === text)) return text;
  throw new InvalidArgumentError("It must be an origin such as https://app.example, without a path, or *.");
}
