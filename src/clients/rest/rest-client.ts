import { TinkerError, ValidationError } from "../../errors.js";
import { ClientMetrics } from "../../session/index.js";
import type { LoadTokenizerOptions, Tokenizer } from "../../tokenizers/index.js";
import {
  APIPromise,
  type APIRequest,
  callEndpoint,
  type EndpointOptions,
  type HttpClientOptions,
  jwtClaims,
  platform,
  REQUEST_FIELDS,
  REQUEST_OPTIONS,
  type RequestOptions,
  randomUuid,
} from "../../transport/index.js";
import {
  type AccessScope,
  type AuditEventType,
  type AuditLog,
  anyText,
  type BillingUsage,
  type BillingUsageRequest,
  type Checkpoint,
  type CheckpointArchiveUrl,
  type CheckpointStorageUsage,
  type Endpoint,
  type ExternalWeightsUrls,
  endpoints,
  type Field,
  type FieldsOf,
  type GivenMessage,
  isTinkerPath,
  optional,
  optionTable,
  parseTinkerPath,
  type SamplerInfo,
  type ServerCapabilities,
  type SessionInfo,
  type SessionSearchRequest,
  type SessionSummary,
  type Shape,
  type TrainingRun,
  ttlSeconds as ttl,
  type WeightsInfo,
} from "../../wire/index.js";
import { CLIENT_OPTIONS } from "../context.js";
import { findArchive } from "./checkpoint-archive.js";
import { Page, PagePromise } from "./page.js";
import { type EndpointCallOptions, RestConnection } from "./rest-connection.js";

/** Part of a list to return. */
export interface ListOptions extends RequestOptions {
  /** Items per page; at most what the server allows. */
  limit?: number | undefined;
  /** Number of items to skip. */
  offset?: number | undefined;
}

/** Whose records to list. */
export interface AccessOptions extends RequestOptions {
  /** `owned` by the caller (the default) or all that is `accessible`. */
  accessScope?: AccessScope | undefined;
}

/** Options of `copyWeights`: destination project, expiry and access token. */
export interface CopyWeightsOptions extends RequestOptions {
  /** Project that receives the copy. Default: TINKER_PROJECT_ID. */
  destinationProjectId?: string | undefined;
  /** Seconds until the copy expires; absent means never. */
  ttlSeconds?: number | undefined;
  /** Access token for a checkpoint of another account. */
  weightsAccessToken?: string | undefined;
}

const COPY_OPTIONS = optionTable({
  ...REQUEST_FIELDS,
  destinationProjectId: optional(anyText),
  ttlSeconds: optional(ttl),
  weightsAccessToken: optional(anyText),
} satisfies FieldsOf<CopyWeightsOptions>);

/** Owner of a credential, as the server reports it. */
export interface Identity {
  userUrn: string;
  orgUrn: string | undefined;
  email: string | undefined;
}

/** Fields of an endpoint that returns part of a list. */
type PageShape = Shape & Readonly<Record<"limit" | "offset", Field<number, "defaulted">>>;

const TRACE_POLL_MS = 5_000;

/**
 * Client for runs, checkpoints, sessions and usage. It needs no session and opens none. Checkpoints are named by their
 * `tinker://` path. Every call returns a promise with `withResponse()`; lists can also be iterated.
 */
export class RestClient {
  /** Counters and latencies of this client's requests. */
  readonly metrics: ClientMetrics;
  readonly #rest: RestConnection;

  constructor(options: HttpClientOptions = {}, metrics: ClientMetrics = new ClientMetrics()) {
    this.#rest = new RestConnection(CLIENT_OPTIONS.check(options, "RestClient"), metrics);
    this.metrics = metrics;
  }

  /** Address of the server. */
  get baseURL(): string {
    return this.#rest.http.baseURL;
  }

  // ---- server

  /** Checks that the server answers; needs no credential. */
  health(options: RequestOptions = {}): Promise<{ status: string }> {
    return callEndpoint(this.#rest.http, endpoints.health, {}, REQUEST_OPTIONS.check(options, "health"));
  }

  /** The models a server offers. */
  getServerCapabilities(options: RequestOptions = {}): APIPromise<ServerCapabilities> {
    return this.#rest.call(endpoints.getServerCapabilities, {}, options);
  }

  /** The tokenizer of a base model, the same as training and sampling clients use. */
  async getTokenizer(
    baseModel: string,
    options: LoadTokenizerOptions & Pick<RequestOptions, "signal"> = {},
  ): Promise<Tokenizer> {
    const { baseURL, server } = this.#rest.http;
    const { tokenizerOfServer } = await import("../../tokenizers/load.js");
    const exchange = (request: APIRequest) => this.#rest.exchange(request);
    return await tokenizerOfServer({ baseURL, server, exchange }, { modelName: baseModel }, options);
  }

  /** The owner of the credential. Needs a server that exchanges credentials for tokens, or a token as the key. */
  async whoami(): Promise<Identity> {
    await this.#rest.connect();
    const token = await this.#rest.http.auth.token();
    if (!token?.startsWith("eyJ")) {
      throw new TinkerError(
        "whoami needs token authentication, but this server takes plain API keys, which say nothing about their owner.",
      );
    }
    return identityOf(jwtClaims(token));
  }

  // ---- training runs

  /** The caller's training runs, newest first. */
  listTrainingRuns(
    options: ListOptions & AccessOptions & { projectId?: string | undefined } = {},
  ): PagePromise<TrainingRun> {
    return this.#pages(endpoints.listTrainingRuns, options, (answer) => ({
      items: answer.trainingRuns,
      totalCount: answer.cursor?.totalCount,
    }));
  }

  /** One training run, by its id or by the path of one of its checkpoints. */
  getTrainingRun(idOrPath: string, options: AccessOptions = {}): APIPromise<TrainingRun> {
    const message = () => {
      const isPath = isTinkerPath(idOrPath);
      return { trainingRunId: isPath ? parseTinkerPath(idOrPath, "idOrPath").trainingRunId : idOrPath };
    };
    return this.#rest.call(endpoints.getTrainingRun, message, options);
  }

  // ---- checkpoints

  /** The checkpoints of one run. */
  listCheckpoints(trainingRunId: string, options: RequestOptions = {}): PagePromise<Checkpoint> {
    return this.#page(
      endpoints.listCheckpoints,
      { trainingRunId },
      options,
      ({ checkpoints }) => new Page(checkpoints, { totalCount: checkpoints.length }),
    );
  }

  /** The checkpoints of all the caller's runs. */
  listUserCheckpoints(options: ListOptions = {}): PagePromise<Checkpoint> {
    return this.#pages(endpoints.listUserCheckpoints, options, (answer) => ({
      items: answer.checkpoints,
      totalCount: answer.cursor?.totalCount,
    }));
  }

  /** Base model and adapter shape of a checkpoint, also of a published one of another account. */
  getWeightsInfo(path: string, options: RequestOptions = {}): APIPromise<WeightsInfo> {
    return this.#rest.call(endpoints.getWeightsInfo, { tinkerPath: path }, options);
  }

  /** Deletes a checkpoint for good. */
  deleteCheckpoint(path: string, options: RequestOptions = {}): APIPromise<void> {
    return this.#rest.call(endpoints.deleteCheckpoint, () => checkpointOf(path), options);
  }

  /** Makes the checkpoint readable by everyone. */
  publishCheckpoint(path: string, options: RequestOptions = {}): APIPromise<void> {
    return this.#rest.call(endpoints.publishCheckpoint, () => checkpointOf(path), options);
  }

  /** Makes the checkpoint readable by its owner only. */
  unpublishCheckpoint(path: string, options: RequestOptions = {}): APIPromise<void> {
    return this.#rest.call(endpoints.unpublishCheckpoint, () => checkpointOf(path), options);
  }

  /** Sets the checkpoint to expire this many seconds from now; null = never. */
  setCheckpointTtl(path: string, ttlSeconds: number | null, options: RequestOptions = {}): APIPromise<void> {
    return this.#rest.call(
      endpoints.setCheckpointTtl,
      () => ({ ...checkpointOf(path), ttlSeconds }),
      options,
    );
  }

  /** Returns a temporary URL of the checkpoint's archive. Waits while the server builds it. */
  async getCheckpointArchiveUrl(path: string, options: RequestOptions = {}): Promise<CheckpointArchiveUrl> {
    const checked = REQUEST_OPTIONS.check(options, "getCheckpointArchiveUrl");
    return findArchive(this.#rest, checkpointOf(path), checked);
  }

  /** Signed URLs of the files of weights saved with `saveWeightsExternal`. */
  getExternalWeightsUrls(path: string, options: RequestOptions = {}): APIPromise<ExternalWeightsUrls> {
    const checkpoint = () => {
      if (parseTinkerPath(path).checkpointType === "external") return checkpointOf(path);
      throw new ValidationError("path", `path must be tinker://<run>/external_weights/<name>, got "${path}"`);
    };
    return this.#rest.call(endpoints.getExternalWeightsUrls, checkpoint, options);
  }

  /** Copies weights into a project on the server. Returns the path of the copy. */
  copyWeights(path: string, options: CopyWeightsOptions = {}): APIPromise<string> {
    const { destinationProjectId, ttlSeconds, weightsAccessToken, ...rest } = options;
    const message = () => {
      COPY_OPTIONS.check(options, "copyWeights");
      const projectId = destinationProjectId ?? platform.env("TINKER_PROJECT_ID");
      if (projectId) return { sourcePath: path, destinationProjectId: projectId, ttlSeconds };
      throw new ValidationError(
        "destinationProjectId",
        "copyWeights needs a destinationProjectId, or TINKER_PROJECT_ID",
      );
    };
    const headers = { "X-Tinker-Weights-Access-Token": weightsAccessToken, ...rest.headers };
    const call = { ...rest, headers, idempotencyKey: randomUuid() };
    return new APIPromise(
      this.#rest.source(endpoints.copyWeights, message, call, ({ tinkerPath }) => tinkerPath),
    );
  }

  // ---- sessions and samplers

  /** The ids of the caller's sessions, newest first. */
  listSessions(options: ListOptions & AccessOptions = {}): PagePromise<string> {
    return this.#pages(endpoints.listSessions, options, ({ sessions }) => ({ items: sessions }));
  }

  /** The runs and samplers of a session. */
  getSession(sessionId: string, options: AccessOptions = {}): APIPromise<SessionInfo> {
    return this.#rest.call(endpoints.getSession, { sessionId }, options);
  }

  /**
   * Searches sessions by name, metadata, owner, project or status, newest first. The service calls this experimental.
   */
  searchSessions(
    search: SessionSearchRequest = {},
    options: RequestOptions = {},
  ): PagePromise<SessionSummary> {
    return this.#page(endpoints.searchSessions, search, options, ({ sessions, nextCursor }) => {
      const next = nextCursor
        ? () => this.searchSessions({ ...search, cursor: nextCursor }, options)
        : undefined;
      return new Page(sessions, { next });
    });
  }

  /** Moves a session, and the runs in it, to a project. */
  assignSessionProject(sessionId: string, projectId: string, options: RequestOptions = {}): APIPromise<void> {
    return this.#rest.call(endpoints.assignSessionProject, { sessionId, projectId }, options);
  }

  /** Waits until the trace of a session is built, and returns the URL to fetch it from. */
  async exportSessionTrace(sessionId: string, options: RequestOptions = {}): Promise<string> {
    for (;;) {
      const trace = await this.#rest.call(endpoints.exportSessionTrace, { sessionId }, options);
      if (trace.status === "ready" && trace.url) return trace.url;
      if (trace.status === "failed")
        throw new TinkerError(`The trace of session ${sessionId} could not be built: ${trace.error}`);
      await this.#rest.http.clock.sleep(TRACE_POLL_MS, options.signal);
    }
  }

  /** Base model and weights of a sampler. */
  getSampler(samplerId: string, options: RequestOptions = {}): APIPromise<SamplerInfo> {
    return this.#rest.call(endpoints.getSampler, { samplerId }, options);
  }

  // ---- administration

  /** Lists the audited actions of a day; default today. */
  getAuditLog(
    options: RequestOptions & {
      eventType?: AuditEventType | undefined;
      day?: string | Date | undefined;
    } = {},
  ): APIPromise<AuditLog> {
    const { day, ...rest } = options;
    const date = day instanceof Date ? day.toISOString().slice(0, 10) : day;
    return this.#rest.call(endpoints.getAuditLog, { day: date }, rest);
  }

  /** Usage by the hour: whole UTC hours, 14 days at most. */
  getBillingUsage(window: BillingUsageRequest, options: RequestOptions = {}): APIPromise<BillingUsage> {
    return this.#rest.call(endpoints.getBillingUsage, window, options);
  }

  /** Reports the storage that the checkpoints of each project take now. */
  getCurrentCheckpointStorageUsage(
    options: RequestOptions & { projectId?: string | undefined } = {},
  ): APIPromise<CheckpointStorageUsage> {
    return this.#rest.call(endpoints.getCurrentCheckpointStorageUsage, {}, options);
  }

  // ---- anything else

  /** Calls any endpoint, also one this SDK does not know: `await client.get("/api/v1/...")`. */
  get<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("get", path, options);
  }

  /** Calls any endpoint with POST, as `get` does. */
  post<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("post", path, options);
  }

  /** Calls any endpoint with PUT, as `get` does. */
  put<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("put", path, options);
  }

  /** Calls any endpoint with DELETE, as `get` does. */
  delete<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("delete", path, options);
  }

  /** Ends the client's connections. */
  async close(): Promise<void> {
    await this.#rest.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #page<S extends Shape, A, T>(
    endpoint: Endpoint<S, A>,
    message: GivenMessage<S>,
    options: EndpointCallOptions<S>,
    pageOf: (answer: A) => Page<T>,
  ): PagePromise<T> {
    return new PagePromise(this.#rest.source(endpoint, message, options, pageOf));
  }

  /** A list that the server pages by offset and limit. */
  #pages<S extends PageShape, A, T>(
    endpoint: Endpoint<S, A>,
    options: EndpointCallOptions<S> & ListOptions,
    listOf: (answer: A) => { items: readonly T[]; totalCount?: number | undefined },
  ): PagePromise<T> {
    const { offset = 0, limit = endpoint.request.shape.limit.fallback! } = options;
    return this.#page(endpoint, {} as GivenMessage<S>, options, (answer) => {
      const { items, totalCount } = listOf(answer);
      const end = offset + items.length;
      const isFull = items.length > 0 && items.length >= limit;
      const hasMore = totalCount === undefined ? isFull : items.length > 0 && end < totalCount;
      const next = () => this.#pages(endpoint, { ...options, offset: end }, listOf);
      return new Page(items, { totalCount, next: hasMore ? next : undefined });
    });
  }
}

function checkpointOf(path: string): { trainingRunId: string; folder: string; name: string } {
  const { trainingRunId, kind, name } = parseTinkerPath(path);
  return { trainingRunId, folder: kind, name };
}

function identityOf(claims: Readonly<Record<string, unknown>>): Identity {
  const text = (name: string) =>
    typeof claims[name] === "string" && claims[name] !== "" ? (claims[name] as string) : undefined;
  const orgId = text("org_id");
  return {
    userUrn: text("user_urn") ?? text("sub") ?? "",
    orgUrn: orgId === undefined ? undefined : `tml:organization:${orgId}`,
    email: text("email"),
  };
}
