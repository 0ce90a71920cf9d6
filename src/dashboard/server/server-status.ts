import type { ServerName } from "../api.js";
import type { TinkerServer } from "./tinker-server.js";

/** The server as the page names it. */
export function serverName(server: TinkerServer | undefined): ServerName | undefined {
  return server && { address: server.address, isBuiltIn: server.activity !== undefined };
}
