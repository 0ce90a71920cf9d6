import { startDashboard } from "../../dashboard/index.js";
import { errorCode } from "../../files.node.js";
import type { CommandContext, CommandModule } from "../context.js";
import { namedServer, openInBrowser } from "../dashboard.js";
import { hasServer } from "../local-service.js";
import { wholeNumber } from "../option-values.js";

interface DashboardCommandOptions {
  readonly port: number;
  readonly open?: boolean;
  readonly readOnly?: boolean;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("[folders...]", "where to look for runs (default: this folder)")
    .option("--port <number>", "where to listen; 0 takes a free port", wholeNumber(0, 65_535), 8643)
    .option("--open", "open it in the browser")
    .option("--read-only", "show everything, change nothing: no deleting, no sampling")
    .action((folders: readonly string[], options: DashboardCommandOptions) =>
      show(folders, options, context),
    );
};

async function show(
  folders: readonly string[],
  { port, open = false, readOnly = false }: DashboardCommandOptions,
  context: CommandContext,
): Promise<void> {
  const interrupted = context.interruption();
  await using dashboard = await start({
    folders: folders.length === 0 ? ["."] : folders,
    server: hasServer(context) ? namedServer(context) : undefined,
    readOnly,
    port,
  });
  context.notify("The dashboard is at the address below, for this machine alone. Ctrl-C ends it.");
  context.stdout.write(`${dashboard.address}\n`);
  if (open) openInBrowser(dashboard.address);
  await new Promise<void>((resolve) => {
    if (interrupted.aborted) resolve();
    interrupted.addEventListener("abort", () => resolve(), { once: true });
  });
}

async function start(options: Parameters<typeof startDashboard>[0]) {
  try {
    return await startDashboard(options);
  } catch (error) {
    if (errorCode(error) !== "EADDRINUSE") throw error;
    throw new Error(`port ${options.port} is taken: give another with --port, or 0 for any free one`);
  }
}
