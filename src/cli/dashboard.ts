import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import type { ServiceClient } from "tinkerts";
import type { TinkerServer } from "../dashboard/index.js";
import type { LocalBackend } from "../local/start.js";
import type { CommandContext } from "./context.js";
import { serverURL } from "./credential.js";
import { shellWord } from "./output/index.js";

const OPENERS: Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>> = {
  darwin: ["open"],
  win32: ["rundll32", "url.dll,FileProtocolHandler"],
};

/** Connection of the dashboard to the server that the command line names. */
export function namedServer(context: CommandContext): TinkerServer {
  return {
    address: serverURL(context.globals()),
    rest: () => context.restClient(),
    service: () => context.serviceClient(),
  };
}

/** Connection of the dashboard to the built-in server of this process. */
export function builtInServer(
  { baseURL: address, fetch, activity }: LocalBackend,
  service: () => Promise<ServiceClient>,
): TinkerServer {
  return { address, rest: async () => (await service()).createRestClient(), service, fetch, activity };
}

/** The command that shows the runs of these folders, to copy. */
export function showCommand(folders: readonly string[]): string {
  const words = folders.map((folder) => shellWord(relative(process.cwd(), folder) || "."));
  return ["npx tinkerts dashboard", ...words].join(" ");
}

/** Starts a dashboard for a run and prints its address. */
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
  const parent = dirname(resolve(folder));
  const dashboard = await startDashboard({ folders: [parent], server, showAgain: showCommand([parent]) });
  context.notify(`Watch it, as long as it runs, at:\n${dashboard.address}`);
  if (open) await openInBrowser(dashboard.address);
  return dashboard;
}

/**
 * Opens an address in the browser; if there is none, the printed address must do. The browser gets a file that
 * redirects: all users of a machine can see the arguments of a program, and the address contains the token.
 */
export async function openInBrowser(address: string): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "tinkerts-open-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const page = join(folder, "dashboard.html");
  const target = address.replaceAll("&", "&amp;").replaceAll('"', "&quot;");
  await writeFile(page, `<!doctype html><meta http-equiv="refresh" content="0; url=${target}">\n`, {
    mode: 0o600,
  });
  const [program, ...args] = OPENERS[process.platform] ?? ["xdg-open"];
  const opened = spawn(program, [...args, page], { stdio: "ignore", detached: true });
  opened.on("error", () => {});
  opened.unref();
}
