import type { BillingPause, Session, Telemetry } from "../session/index.js";
import type { ByteBudget, Clock, HttpClient, Logger } from "../transport/index.js";

/** What every long operation of one session shares. */
export interface FutureContext {
  http: HttpClient;
  session: Session;
  clock: Clock;
  logger: Logger;
  telemetry: Telemetry;
  billing: BillingPause;
  /** Bytes of large results that may be on their way at once. */
  responseBudget: ByteBudget;
  /** Aborted when the client is closed: ends every operation. */
  closed: AbortSignal;
  /** Wait a little between polls when the server answers them at once instead of holding them. */
  pollBackoff: boolean;
}
