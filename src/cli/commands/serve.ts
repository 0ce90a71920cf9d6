import { InvalidArgumentError } from "commander";
import type { ServiceClient } from "tinkerts";
import type { Dashboard } from "../../dashboard/index.js";
import { defaultModel, type LocalModel } from "../../local/default-model.js";
import type { ModelSource } from "../../local/model-source.js";
import { BACKEND_OPTIONS, type LocalBackendOptions } from "../../local/options.js";
import type { LocalBackend } from "../../local/start.js";
import { isLoopbackHost } from "../../transport/request-encoding.js";
import { defaulting, message } from "../../wire/index.js";
import { CREATED_BY } from "../clients.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { builtInServer, showCommand } from "../dashboard.js";
import { describeDevice } from "../device-options.js";
import { addFlags, optionsFromFlags } from "../option-flags.js";
import { gathered, wholeNumber } from "../option-values.js";
import { checkReach, explainListening, whenAborted } from "../serve/listening.js";
import { announceAddress } from "../serve/served-address.js";
import { KEYS_VARIABLE, serverKeys } from "../serve/server-keys.js";

const DASHBOARD_PATH = "/dashboard";

const { fields: BACKEND } = BACKEND_OPTIONS;
/** The options of `startLocalBackend` that are flags of this command. */
const FLAGS = {
  ...BACKEND,
  port: defaulting(BACKEND.port, 8642),
  dataDir: defaulting(BACKEND.dataDir, ".tinkerts"),
};

interface ServeOptions {
  readonly model?: readonly ModelSource[];
  readonly nano: boolean;
  readonly apiKey?: readonly string[];
  readonly apiKeyFile?: string;
  readonly maxDisk?: number;
  readonly cors?: readonly string[];
  readonly runs?: readonly string[];
  readonly quiet?: boolean;
}

export const define: CommandModule["define"] = (command, context) => {
  addFlags(command, FLAGS)
    .option(
      "--model <model>",
      `a Hugging Face id, a folder, or NAME=FOLDER, besides ${defaultModel.name} (repeatable)`,
      gathered(readModel),
    )
    .option("--no-nano", `without ${defaultModel.name}`)
    .option(
      "--api-key <key>",
      `${BACKEND.apiKeys.notes.help} (repeatable); other users of this machine can see them`,
      gathered((key) => key),
    )
    .option("--api-key-file <file>", "file with one API key per line")
    .option("--cors <origin>", `${BACKEND.corsOrigins.notes.help} (repeatable)`, gathered(readOrigin))
    .option(
      "--max-disk <GB>",
      "disk for checkpoints, shared by the keys (default: all of the disk)",
      wholeNumber(1, 1_000_000),
    )
    .option(
      "--runs <folder>",
      "folder in which the dashboard looks for runs (repeatable; default: this folder)",
      gathered(String),
    )
    .option("--quiet", "print nothing but the address")
    .action((options: ServeOptions) => serve(options, context));
};

async function serve(
  {
    model: given = [],
    nano,
    apiKey,
    apiKeyFile,
    maxDisk,
    cors: corsOrigins = [],
    runs = ["."],
    quiet = false,
    ...flags
  }: ServeOptions,
  context: CommandContext,
): Promise<void> {
  const { host, ...options } = message(FLAGS).check(optionsFromFlags(FLAGS, flags), "");
  const { stdout } = context;
  const { modelCheck } = await import("../../local/engine/start-engine.node.js");
  const { createDashboard } = await import("../../dashboard/index.js");
  const apiKeys = await serverKeys({ apiKey, apiKeyFile }, context);
  checkReach(host, apiKeys, KEYS_VARIABLE);
  const sources = modelSources(given, nano);
  const interrupted = context.interruption();
  const { findOrDownloadModel } = await import("./find-model.js");
  const models: LocalModel[] = [];
  // One after the other: only one line shows downloads.
  for (const source of sources)
    models.push(await findOrDownloadModel(context, source, modelCheck(options.device)));
  let dashboard: Dashboard | undefined;
  const beside = (request: Request) => (isAtDashboard(request) ? dashboard?.fetch(request) : undefined);
  const limits = maxDisk === undefined ? {} : { diskBytes: maxDisk * 1e9 };
  const backend = await start({ ...options, host, corsOrigins, models, apiKeys, limits, beside });
  let endShow = () => {};
  const takeBackAddress = await announceAddress(backend.dataDir, backend.baseURL);
  let service: ServiceClient | undefined;
  const server = builtInServer(backend, async () => {
    const { ServiceClient } = await import("tinkerts");
    service ??= new ServiceClient({ ...backend, userMetadata: { [CREATED_BY]: "tinkerts serve" } });
    return service;
  });
  try {
    // Not shown to other machines.
    if (isLoopbackHost(host))
      dashboard = createDashboard({
        folders: runs,
        server,
        basePath: DASHBOARD_PATH,
        showAgain: showCommand(runs),
      });
    if (!quiet) {
      context.notify(`Serving ${models.map(({ name }) => name).join(", ")} at ${backend.baseURL}`);
      context.notify(describeDevice(backend.device));
      context.notify(`Runs and checkpoints are kept in ${backend.dataDir}. Ctrl-C ends the server.`);
      if (apiKeys.length === 0)
        context.notify(
          "It takes requests without a key: every user of this machine can use it and sees all in it. --api-key-file ends that.",
        );
      if (dashboard !== undefined)
        context.notify(`The dashboard is at ${backend.baseURL}${DASHBOARD_PATH}/#token=${dashboard.token}`);
      context.notify("To use it from another terminal:\n");
    }
    stdout.write(`export TINKER_BASE_URL=${backend.baseURL}\n`);
    // A server with keys of its own does not print them.
    stdout.write(`export TINKER_API_KEY=${apiKeys.length === 0 ? backend.apiKey : "'one of your keys'"}\n`);
    if (!quiet) {
      const { showActivity } = await import("../serve/show-activity.js");
      if (context.stderr.isTTY) context.stderr.write("\n");
      endShow = showActivity(backend.activity, context.stderr);
    }
    await whenAborted(interrupted);
  } finally {
    endShow();
    await takeBackAddress();
    dashboard?.close();
    await service?.close();
    await backend.close();
  }
}

function isAtDashboard(request: Request): boolean {
  return `${new URL(request.url).pathname}/`.startsWith(`${DASHBOARD_PATH}/`);
}

/** The built-in model is included unless `--no-nano` or another shape of it is given. */
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
  return explainListening(options, () => startLocalBackend(options));
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
