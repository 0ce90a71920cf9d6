import { startDashboard } from "../../dashboard/index.js";
import type { CommandContext, CommandModule } from "../context.js";
import { namedServer, openInBrowser, showCommand } from "../dashboard.js";
import { hasServer } from "../local-service.js";
import { wholeNumber } from "../option-values.js";
import { explainListening, whenAborted } from "../serve/listening.js";

interface DashboardCommandOptions {
  readonly port: number;
  readonly open?: boolean;
  readonly readOnly?: boolean;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("[folders...]", "where to look for runs (default: this folder)")
    .option("--port <number>", "port to listen on; 0 for any free port", wholeNumber(0, 65_535), 8643)
    .option("--open", "open it in the browser")
    .option("--read-only", "no deleting, no sampling")
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
  const shown = folders.length === 0 ? ["."] : folders;
  await using dashboard = await explainListening({ port }, () =>
    startDashboard({
      folders: shown,
      showAgain: showCommand(shown),
      server: hasServer(context) ? namedServer(context) : undefined,
      readOnly,
      port,
    }),
  );
  context.notify("The dashboard is at the address below, for this machine alone. Ctrl-C ends it.");
  context.stdout.write(`${dashboard.address}\n`);
  if (open) await openInBrowser(dashboard.address);
  await whenAborted(interrupted);
}
