import type { Clock } from "../../../transport/clock.js";
import { toWireJson } from "../../../wire/json-keys.js";
import type { AuditLog } from "../../store/audit-log.js";
import type { Identity } from "../http/route.js";

/** Writes down who changed what. */
export class AuditTrail {
  readonly #log: AuditLog;
  readonly #clock: Clock;

  constructor(log: AuditLog, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** The event's part before the '.' is the resource. */
  async record(
    { owner }: Pick<Identity, "owner">,
    event: string,
    about: { modelId?: string; tinkerPath?: string; details?: Record<string, unknown> } = {},
  ): Promise<void> {
    await this.#log.append({
      timestamp: new Date(this.#clock.wallNow()).toISOString(),
      owner,
      event,
      modelId: about.modelId ?? null,
      tinkerPath: about.tinkerPath ?? null,
      details: toWireJson(about.details ?? {}) as Record<string, unknown>,
    });
  }
}
