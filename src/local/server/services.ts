import type { Clock } from "../../transport/clock.js";
import type { ClientConfig } from "../../wire/records/session-types.js";
import type { BaseModelInfo, Engine } from "../engine/engine.js";
import type { Store } from "../store/store.js";
import type { TextTokenizer } from "../tokenizer.js";
import type { AuditTrail } from "./access/audit-trail.js";
import type { Identities } from "./access/identity.js";
import type { UrlSigner } from "./access/url-signer.js";
import type { Activity } from "./activity.js";
import type { TextModels } from "./chat/text-models.js";
import type { DiskQuota } from "./checkpoints/disk-quota.js";
import type { FutureStore } from "./futures/future-store.js";
import type { BodyReader } from "./http/body.js";
import type { Limits } from "./http/limits.js";
import type { SampleRuns } from "./sampling/sample-runs.js";
import type { SamplingSessions } from "./sampling/sampling-sessions.js";
import type { BaseModels } from "./sessions/base-models.js";
import type { LiveModels } from "./sessions/live-models.js";
import type { LiveSessions } from "./sessions/live-sessions.js";

/** Parts of one server, for its routes. */
export interface Services {
  readonly engine: Engine;
  readonly store: Store;
  readonly clock: Clock;
  readonly random: () => number;
  readonly limits: Limits;
  readonly reader: BodyReader;
  readonly clientConfig: Partial<ClientConfig>;
  readonly baseModels: BaseModels;
  readonly identities: Identities;
  readonly signer: UrlSigner;
  readonly audit: AuditTrail;
  readonly activity: Activity;
  readonly disk: DiskQuota;
  readonly futures: FutureStore;
  readonly sessions: LiveSessions;
  readonly models: LiveModels;
  readonly samplingSessions: SamplingSessions;
  readonly sampleRuns: SampleRuns;
  /** The tokenizer in a model's folder; null where there is none. */
  readonly tokenizerOf: (model: BaseModelInfo) => TextTokenizer | null;
  readonly textModelOf: TextModels;
}
