import { TinkerError, ValidationError } from "../../errors.js";
import { Metrics } from "../../session/index.js";
import type { LoadTokenizerOptions, Tokenizer } from "../../tokenizers/index.js";
import {
  APIPromise,
  type ApiRequest,
  callEndpoint,
  type EndpointOptions,
  type HttpClientOptions,
  jwtClaims,
  platform,
  type RequestOptions,
  randomUuid,
} from "../../transport/index.js";
import {
  type AccessScope,
  type AuditEventType,
  type AuditLog,
  type BillingUsage,
  type BillingUsageRequest,
  type Checkpoint,
  type CheckpointArchiveUrl,
  type CheckpointStorageUsage,
  checkSpelling,
  type Endpoint,
  type ExternalWeightsUrls,
  endpoints,
  type GivenMessage,
  isTinkerPath,
  parseTinkerPath,
  type SamplerInfo,
  type ServerCapabilities,
  type SessionInfo,
  type SessionSearchRequest,
  type SessionSummary,
  type Shape,
  type TrainingRun,
  type WeightsInfo,
} from "../../wire/index.js";
import { CLIENT_OPTIONS } from "../context.js";
import { findArchive } from "./checkpoint-archive.js";
import { Page, PagePromise } from "./page.js";
import { RestConnection } from "./rest-connection.js";

/** Which part of a list a page holds. */
export interface ListOptions extends RequestOptions {
  /** Items per page. */
  limit?: number | undefined;
  /** How many items to leave out at the beginning. */
  offset?: number | undefined;
}

/** Whose records are meant. */
export interface AccessOptions extends RequestOptions {
  /** `owned` by the caller (the default) or all that is `accessible`. */
  accessScope?: AccessScope | undefined;
}

/** Options of `copyWeights`. */
export interface CopyWeightsOptions extends RequestOptions {
  /** Default: TINKER_PROJECT_ID. */
  destinationProjectId?: string | undefined;
  /** Seconds until the copy expires; absent means never. */
  ttlSeconds?: number | undefined;
  /** For a checkpoint of another account. */
  weightsAccessToken?: string | undefined;
}

/** Who a credential belongs to. */
export interface Identity {
  userUrn: string;
  orgUrn: string | undefined;
  email: string | undefined;
}

const TRACE_POLL_MS = 5_000;

/**
 * Runs, checkpoints, sessions and usage. Needs no session, so nothing of it shows in the session list. Checkpoints are
 * named by their `tinker://` path. Every call is a promise with `withResponse()`; lists can also be iterated.
 */
export class RestClient {
  /** Counters and latencies of this client's requests. */
  readonly metrics: Metrics;
  readonly #rest: RestConnection;

  constructor(options: HttpClientOptions = {}, metrics: Metrics = new Metrics()) {
    checkSpelling(options, CLIENT_OPTIONS);
    this.#rest = new RestConnection(options, metrics);
    this.metrics = metrics;
  }

  // ---- server

  /** Whether the server answers; asks for no credential. */
  health(options: RequestOptions = {}): Promise<{ status: string }> {
    return callEndpoint(this.#rest.http, endpoints.health, {}, options);
  }

  /** The models a server offers. */
  getServerCapabilities(options: RequestOptions = {}): APIPromise<ServerCapabilities> {
    return this.#rest.call(endpoints.getServerCapabilities, {}, options);
  }

  /** The tokenizer of a base model of the server, as the clients that train it and sample from it have it. */
  async getTokenizer(
    baseModel: string,
    options: LoadTokenizerOptions & Pick<RequestOptions, "signal"> = {},
  ): Promise<Tokenizer> {
    const { baseURL, server } = this.#rest.http;
    const { tokenizerOfServer } = await import("../../tokenizers/load.js");
    const exchange = (request: ApiRequest) => this.#rest.exchange(request);
    return await tokenizerOfServer({ baseURL, server, exchange }, { modelName: baseModel }, options);
  }

  /** Who the credential belongs to. Needs a server that exchanges credentials for tokens, or a token as the key. */
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
    const { limit = 20, offset = 0, accessScope, projectId, ...rest } = options;
    const message = { limit, offset, accessScope, projectId };
    return this.#pages(endpoints.listTrainingRuns, message, rest, (answer) => ({
      items: answer.trainingRuns,
      totalCount: answer.cursor?.totalCount,
    }));
  }

  /** One training run, by its id or by the path of one of its checkpoints. */
  getTrainingRun(idOrPath: string, options: AccessOptions = {}): APIPromise<TrainingRun> {
    const { accessScope, ...rest } = options;
    const message = () => {
      const isPath = isTinkerPath(idOrPath);
      const trainingRunId = isPath ? parseTinkerPath(idOrPath, "idOrPath").trainingRunId : idOrPath;
      return { trainingRunId, accessScope };
    };
    return this.#rest.call(endpoints.getTrainingRun, message, rest);
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
    const { limit = 100, offset = 0, ...rest } = options;
    return this.#pages(endpoints.listUserCheckpoints, { limit, offset }, rest, (answer) => ({
      items: answer.checkpoints,
      totalCount: answer.cursor?.totalCount,
    }));
  }

  /** Base model and adapter shape of a checkpoint, also of a published one of somebody else. */
  getWeightsInfo(path: string, options: RequestOptions = {}): APIPromise<WeightsInfo> {
    return this.#rest.call(endpoints.getWeightsInfo, { tinkerPath: path }, options);
  }

  /** Deletes a checkpoint for good. */
  deleteCheckpoint(path: string, options: RequestOptions = {}): APIPromise<void> {
    return this.#rest.call(endpoints.deleteCheckpoint, () => checkpointOf(path), options);
  }

  /** Lets everybody read the checkpoint. */
  publishCheckpoint(path: string, options: RequestOptions = {}): APIPromise<void> {
    return this.#rest.call(endpoints.publishCheckpoint, () => checkpointOf(path), options);
  }

  /** Lets nobody but its owner read the checkpoint. */
  unpublishCheckpoint(path: string, options: RequestOptions = {}): APIPromise<void> {
    return this.#rest.call(endpoints.unpublishCheckpoint, () => checkpointOf(path), options);
  }

  /** Lets the checkpoint expire after so many seconds from now; null = never. */
  setCheckpointTtl(path: string, ttlSeconds: number | null, options: RequestOptions = {}): APIPromise<void> {
    return this.#rest.call(
      endpoints.setCheckpointTtl,
      () => ({ ...checkpointOf(path), ttlSeconds }),
      options,
    );
  }

  /** A URL, valid for a while, from which the checkpoint's archive can be fetched. Waits while the server builds it. */
  async getCheckpointArchiveUrl(path: string, options: RequestOptions = {}): Promise<CheckpointArchiveUrl> {
    return findArchive(this.#rest, checkpointOf(path), options);
  }

  /** Signed URLs of the files of weights saved with `saveWeightsExternal`. */
  getExternalWeightsUrls(path: string, options: RequestOptions = {}): APIPromise<ExternalWeightsUrls> {
    const checkpoint = () => {
      if (parseTinkerPath(path).checkpointType === "external") return checkpointOf(path);
      throw new ValidationError("path", `path must be tinker://<run>/external_weights/<name>, got "${path}"`);
    };
    return this.#rest.call(endpoints.getExternalWeightsUrls, checkpoint, options);
  }

  /** Copies weights into a project, without copying their bytes. Returns the path of the copy. */
  copyWeights(path: string, options: CopyWeightsOptions = {}): APIPromise<string> {
    const { destinationProjectId, ttlSeconds, weightsAccessToken, ...rest } = options;
    const message = () => {
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
    const { limit = 20, offset = 0, accessScope, ...rest } = options;
    return this.#pages(endpoints.listSessions, { limit, offset, accessScope }, rest, ({ sessions }) => ({
      items: sessions,
    }));
  }

  /** The runs and samplers of a session. */
  getSession(sessionId: string, options: AccessOptions = {}): APIPromise<SessionInfo> {
    const { accessScope, ...rest } = options;
    return this.#rest.call(endpoints.getSession, { sessionId, accessScope }, rest);
  }

  /** Sessions by name, metadata, owner, project or status, newest first. The service calls this experimental. */
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

  /** What was done on a day, today when absent. */
  getAuditLog(
    options: RequestOptions & {
      eventType?: AuditEventType | undefined;
      day?: string | Date | undefined;
    } = {},
  ): APIPromise<AuditLog> {
    const { eventType, day, ...rest } = options;
    const date = day instanceof Date ? day.toISOString().slice(0, 10) : day;
    return this.#rest.call(endpoints.getAuditLog, { eventType, day: date }, rest);
  }

  /** Usage by the hour: whole UTC hours, 14 days at most. */
  getBillingUsage(window: BillingUsageRequest, options: RequestOptions = {}): APIPromise<BillingUsage> {
    return this.#rest.call(endpoints.getBillingUsage, window, options);
  }

  /** What the checkpoints of each project take right now. */
  getCurrentCheckpointStorageUsage(
    options: RequestOptions & { projectId?: string | undefined } = {},
  ): APIPromise<CheckpointStorageUsage> {
    const { projectId, ...rest } = options;
    return this.#rest.call(endpoints.getCurrentCheckpointStorageUsage, { projectId }, rest);
  }

  // ---- anything else

  /** Calls any endpoint, also one this SDK does not know: `await client.get("/api/v1/...")`. */
  get<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("get", path, options);
  }

  /** As `get`, with POST. */
  post<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("post", path, options);
  }

  /** As `get`, with PUT. */
  put<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("put", path, options);
  }

  /** As `get`, with DELETE. */
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
    options: RequestOptions,
    pageOf: (answer: A) => Page<T>,
  ): PagePromise<T> {
    return new PagePromise(this.#rest.source(endpoint, message, options, pageOf));
  }

  /** A list that the server cuts by offset and limit. */
  #pages<S extends Shape, A, T>(
    endpoint: Endpoint<S, A>,
    message: GivenMessage<S> & { offset: number; limit: number },
    options: RequestOptions,
    listOf: (answer: A) => { items: readonly T[]; totalCount?: number | undefined },
  ): PagePromise<T> {
    return this.#page(endpoint, message, options, (answer) => {
      const { items, totalCount } = listOf(answer);
      const end = message.offset + items.length;
      const isFull = items.length > 0 && items.length >= message.limit;
      const hasMore = totalCount === undefined ? isFull : items.length > 0 && end < totalCount;
      const next = () => this.#pages(endpoint, { ...message, offset: end }, options, listOf);
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
