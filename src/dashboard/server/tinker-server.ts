import type { RestClient, ServiceClient } from "../../clients/index.js";
import type { ServerActivity } from "../../local/server/index.js";

/** The Tinker server behind a dashboard. The dashboard's own server adds the key; the page never sees it. */
export interface TinkerServer {
  /** As people know it. */
  readonly address: string;
  rest(): Promise<RestClient>;
  /** Called before something is sampled; opens a session if none is open. */
  service(): Promise<ServiceClient>;
  /** Fetches archives of a server without a socket. */
  readonly fetch?: typeof fetch | undefined;
  /** Activity of a built-in server in this process. */
  readonly activity?: ServerActivity | undefined;
}
