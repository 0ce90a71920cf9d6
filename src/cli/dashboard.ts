import { spawn } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { ServiceClient } from "tinkerts";
import type { TinkerServer } from "../dashboard/index.js";
import type { LocalBackend } from "../local/start.js";
import type { CommandContext } from "./context.js";
import { serverURL } from "./credential.js";

const OPENERS: Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>> = {
  darwin: ["open"],
  win32: ["rundll32", "url.dll,FileProtocolHandler"],
};

/** The server that the command line names, as a dashboard asks it. */
export function namedServer(context: CommandContext): TinkerServer {
  return {
    address: serverURL(context.globals()),
    rest: () => context.restClient(),
    service: () => context.serviceClient(),
  };
}

/** A built-in server of this process, as a dashboard asks it. */
export function builtInServer(
  { baseURL: address, fetch, activity }: LocalBackend,
  service: () => Promise<ServiceClient>,
): TinkerServer {
  return { address, rest: async () => (await service()).createRestClient(), service, fetch, activity };
}

/** Starts a dashboard for a run that is about to begin and those beside it, and says where it is. */
export async function showRun(
  context: CommandContext,
  {
    folder,
    server,
    open,
  }: { readonly folder: string; readonly server: TinkerServer | undefined; readonly open: boolean },
): Promise<AsyncDisposable> {
  const { startDashboard } = await import("../dashboard/index.js");
  await mkdir(folder, { recursive: true });
  const dashboard = await startDashboard({ folders: [dirname(resolve(folder))], server });
  context.notify(`Watch it, as long as it runs, at ${dashboard.address}`);
  if (open) openInBrowser(dashboard.address);
  return dashboard;
}

/** Shows an address in the person's browser; where there is none, the address that was printed has to do. */
export function openInBrowser(address: string): void {
  const [program, ...args] = OPENERS[process.platform] ?? ["xdg-open"];
  const opened = spawn(program, [...args, address], { stdio: "ignore", detached: true });
  opened.on("error", () => {});
  opened.unref();
}
