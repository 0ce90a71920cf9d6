import { spawn } from "node:child_process";
import type { TinkerServer } from "../dashboard/index.js";
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

/** Shows an address in the person's browser; where there is none, the address that was printed has to do. */
export function openInBrowser(address: string): void {
  const [program, ...args] = OPENERS[process.platform] ?? ["xdg-open"];
  const opened = spawn(program, [...args, address], { stdio: "ignore", detached: true });
  opened.on("error", () => {});
  opened.unref();
}
