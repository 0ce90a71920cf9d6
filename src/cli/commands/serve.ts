import { InvalidArgumentError } from "commander";
import { defaultModel, type LocalModel } from "../../local/default-model.js";
import type { ModelSource } from "../../local/model-source.js";
import type { LocalBackend, LocalBackendOptions } from "../../local/start.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { gathered, wholeNumber } from "../option-values.js";

interface ServeOptions {
  readonly port: number;
  readonly host: string;
  readonly dataDir: string;
  readonly model?: readonly ModelSource[];
  readonly apiKey?: readonly string[];
  readonly tokens?: boolean;
  readonly threads?: number;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .option("--port <number>", "where to listen; 0 takes a free port", wholeNumber(0, 65_535), 8642)
    .option("--host <address>", "who may connect: an address of this machine", "127.0.0.1")
    .option("--data-dir <folder>", "where runs and checkpoints are kept", ".tinkerts")
    .option(
      "--model <model>",
      `a Hugging Face id, a folder, or NAME=FOLDER; may be repeated (default: ${defaultModel.name})`,
      gathered(readModel),
    )
    .option(
      "--api-key <key>",
      "a key (tml-...) that clients must send; may be repeated",
      gathered((key) => key),
    )
    .option("--tokens", "let clients exchange their key for tokens that end after an hour")
    .option("--threads <number>", "threads for the training (default: one per core)", wholeNumber(1, 64))
    .action((options: ServeOptions) => serve(options, context));
};

async function serve(
  {
    port,
    host,
    dataDir,
    model: sources = [defaultModel],
    apiKey: apiKeys = [],
    tokens = false,
    threads,
  }: ServeOptions,
  context: CommandContext,
): Promise<void> {
  const { stdout } = context;
  const { isLoopback } = await import("../../local/start.js");
  if (apiKeys.length === 0 && !isLoopback(host)) {
    throw new UsageError(
      `listening on ${host} lets other machines in, which needs an API key: give --api-key, or leave --host out to stay on this machine`,
    );
  }
  const interrupted = context.interruption();
  const { checkModel } = await import("../../local/engine/model/base-model.js");
  const { findModel } = await import("./find-model.js");
  const models: LocalModel[] = [];
  // One after the other: there is one line to show a download in.
  for (const source of sources) models.push(await findModel(context, source, checkModel));
  const backend = await start({ port, host, dataDir, models, apiKeys, tokens, ...(threads && { threads }) });
  try {
    context.notify(`Serving ${models.map(({ name }) => name).join(", ")} at ${backend.baseURL}`);
    context.notify(`Runs and checkpoints are kept in ${backend.dataDir}. Ctrl-C ends the server.`);
    context.notify("To use it from another terminal:\n");
    stdout.write(`export TINKER_BASE_URL=${backend.baseURL}\n`);
    // A server with keys of its own does not show them.
    stdout.write(`export TINKER_API_KEY=${apiKeys.length === 0 ? backend.apiKey : "'one of your keys'"}\n`);
    await new Promise<void>((resolve) => {
      if (interrupted.aborted) resolve();
      interrupted.addEventListener("abort", () => resolve(), { once: true });
    });
  } finally {
    await backend.close();
  }
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
