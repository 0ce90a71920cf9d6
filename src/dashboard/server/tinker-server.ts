import type { RestClient, ServiceClient } from "../../clients/index.js";
import type { ServerActivity } from "../../local/server/index.js";

/** The Tinker server that a dashboard asks, with whatever key that takes: the page never sees one. */
export interface TinkerServer {
  /** As people know it. */
  readonly address: string;
  rest(): Promise<RestClient>;
  /** Called when something is to be sampled: opens a session where none is open. */
  service(): Promise<ServiceClient>;
  /** How its archives are fetched, where it has no socket. */
  readonly fetch?: typeof fetch | undefined;
  /** Of a built-in server in this process. */
  readonly activity?: ServerActivity | undefined;
}
