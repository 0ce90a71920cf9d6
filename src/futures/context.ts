import type { BillingPause, Session, Telemetry } from "../session/index.js";
import type { ByteBudget, Clock, HttpClient, Logger } from "../transport/index.js";

/** State that all long operations of one session share. */
export interface FutureContext {
  http: HttpClient;
  session: Session;
  clock: Clock;
  logger: Logger;
  telemetry: Telemetry;
  billing: BillingPause;
  /** The format in which this server takes training data, as far as its answers have shown. */
  trainingFormat: "protobuf" | "json" | "unknown";
  /** Bytes of large results that may be on their way at once. */
  responseBudget: ByteBudget;
  /** Aborted when the client is closed: ends every operation. */
  closed: AbortSignal;
  /** Wait a little between polls when the server answers them at once instead of holding them. */
  pollBackoff: boolean;
}
