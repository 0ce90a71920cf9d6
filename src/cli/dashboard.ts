import { spawn } from "node:child_process";
import type { ServiceClient } from "tinkerts";
import type { TinkerServer } from "../dashboard/index.js";
import type { LocalBackend } from "../local/start.js";
import { CREATED_BY } from "./clients.js";
import type { CommandContext } from "./context.js";
import { serverURL } from "./credential.js";
import { hasServer } from "./local-service.js";

const OPENERS: Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>> = {
  darwin: ["open"],
  win32: ["rundll32", "url.dll,FileProtocolHandler"],
};

/** The server that the command line names, as a dashboard asks it; none where none is named. */
export function serverOf(context: CommandContext): TinkerServer | undefined {
  if (!hasServer(context)) return undefined;
  return {
    address: serverURL(context.globals()),
    rest: () => context.restClient(),
    service: () => context.serviceClient(),
  };
}

/** A built-in server of this process, as a dashboard asks it. */
export function builtInServer(backend: LocalBackend): TinkerServer & AsyncDisposable {
  let service: Promise<ServiceClient> | undefined;
  const open = async () => {
    const { ServiceClient } = await import("tinkerts");
    return new ServiceClient({ ...backend, userMetadata: { [CREATED_BY]: "tinkerts dashboard" } });
  };
  const opened = () => (service ??= open());
  return {
    address: backend.baseURL,
    rest: async () => (await opened()).createRestClient(),
    service: opened,
    fetch: backend.fetch,
    activity: backend.activity,
    [Symbol.asyncDispose]: async () => (await service)?.close(),
  };
}

/** Shows an address in the person's browser; where there is none, the address that was printed has to do. */
export function openInBrowser(address: string): void {
  const [program, ...args] = OPENERS[process.platform] ?? ["xdg-open"];
  const opened = spawn(program, [...args, address], { stdio: "ignore", detached: true });
  opened.on("error", () => {});
  opened.unref();
}
