import { APIError, TinkerError, ValidationError } from "../errors.js";
import { BillingPause } from "../futures/index.js";
import { Metrics, Session } from "../session/index.js";
import {
  APIPromise,
  type ApiRequest,
  type ApiResponse,
  type EndpointOptions,
  HttpClient,
  type HttpClientOptions,
  jwtClaims,
  platform,
  type RequestOptions,
  randomUuid,
} from "../transport/index.js";
import { PROTOCOL_VERSION } from "../version.js";
import {
  type AccessScope,
  type AuditEventType,
  type AuditLog,
  type BillingUsage,
  type BillingUsageRequest,
  type Checkpoint,
  type CheckpointArchiveUrl,
  type CheckpointStorageUsage,
  type CheckpointsListResponse,
  checkBillingUsageRequest,
  checkSessionSearchRequest,
  checkTtlSeconds,
  type ExternalWeightsUrls,
  fromWireJson,
  type ListSessionsResponse,
  parseTinkerPath,
  type SamplerInfo,
  type ServerCapabilities,
  type SessionInfo,
  type SessionSearchRequest,
  type SessionSearchResponse,
  type SessionSummary,
  type TraceExport,
  type TrainingRun,
  type TrainingRunsResponse,
  toWireJson,
  type WeightsInfo,
} from "../wire/index.js";
import { offsetPages, Page, PageRequest } from "./page.js";

export interface ListOptions extends RequestOptions {
  /** Items per page. */
  limit?: number | undefined;
  offset?: number | undefined;
}

export interface AccessOptions extends RequestOptions {
  /** `owned` by the caller (the default) or all that is `accessible`. */
  accessScope?: AccessScope | undefined;
}

export interface Identity {
  userUrn: string;
  orgUrn: string | undefined;
  email: string | undefined;
}

const TRACE_POLL_MS = 5_000;
const ARCHIVE_POLL_MS = 30_000;
const ARCHIVE_TRIES = 6;
const ARCHIVE_DEFAULT_LIFETIME_MS = 15 * 60_000;

/** Runs, checkpoints, sessions and usage. Needs no session, so nothing of it shows in the session list. */
export class RestClient {
  readonly metrics: Metrics;
  readonly #http: HttpClient;
  #connected: Promise<Session> | undefined;
  #billing: BillingPause | undefined;

  constructor(options: HttpClientOptions = {}, metrics: Metrics = new Metrics()) {
    this.#http = new HttpClient(options);
    this.metrics = metrics;
  }

  // ---- server

  /** Whether the server answers; asks for no credential. */
  async health(options: RequestOptions = {}): Promise<{ status: string }> {
    const response = await this.#http.exchange({
      ...options,
      method: "GET",
      path: "/api/v1/healthz",
      pool: "session",
    });
    return fromWireJson<{ status: string }>(response.json());
  }

  getServerCapabilities(options: RequestOptions = {}): Promise<ServerCapabilities> {
    return this.#get("/get_server_capabilities", "get_server_capabilities", options);
  }

  /** Who the credential belongs to. Needs a server that exchanges credentials for tokens, or a token as the key. */
  async whoami(): Promise<Identity> {
    await this.#connect();
    const token = await this.#http.auth.token();
    if (!token?.startsWith("eyJ")) {
      throw new TinkerError(
        "whoami needs token authentication, but this server takes plain API keys, which carry no name.",
      );
    }
    const claims = jwtClaims(token);
    const text = (name: string) =>
      typeof claims[name] === "string" && claims[name] !== "" ? (claims[name] as string) : undefined;
    const orgId = text("org_id");
    return {
      userUrn: text("user_urn") ?? text("sub") ?? "",
      orgUrn: orgId === undefined ? undefined : `tml:organization:${orgId}`,
      email: text("email"),
    };
  }

  // ---- training runs

  listTrainingRuns(
    options: ListOptions & AccessOptions & { projectId?: string | undefined } = {},
  ): PageRequest<TrainingRun> {
    const { limit = 20, offset = 0, accessScope = "owned", projectId, ...rest } = options;
    return offsetPages(
      async (pageOffset, pageLimit) => {
        const query = {
          limit: pageLimit,
          offset: pageOffset,
          access_scope: accessScope,
          project_id: projectId,
        };
        const page = await this.#get<TrainingRunsResponse>(
          "/training_runs",
          "list_training_runs",
          rest,
          query,
        );
        return { items: page.trainingRuns, totalCount: page.cursor?.totalCount };
      },
      offset,
      limit,
    );
  }

  getTrainingRun(trainingRunId: string, options: AccessOptions = {}): Promise<TrainingRun> {
    const { accessScope = "owned", ...rest } = options;
    return this.#get(`/training_runs/${encode(trainingRunId)}`, "get_training_run", rest, {
      access_scope: accessScope,
    });
  }

  getTrainingRunByTinkerPath(path: string, options: AccessOptions = {}): Promise<TrainingRun> {
    return this.getTrainingRun(parseTinkerPath(path).trainingRunId, options);
  }

  // ---- checkpoints

  /** The checkpoints of one run. */
  listCheckpoints(trainingRunId: string, options: RequestOptions = {}): PageRequest<Checkpoint> {
    return new PageRequest(async () => {
      const path = `/training_runs/${encode(trainingRunId)}/checkpoints`;
      const list = await this.#get<CheckpointsListResponse>(path, "list_checkpoints", options);
      return new Page(list.checkpoints, { totalCount: list.checkpoints.length });
    });
  }

  /** The checkpoints of all the caller's runs. */
  listUserCheckpoints(options: ListOptions = {}): PageRequest<Checkpoint> {
    const { limit = 100, offset = 0, ...rest } = options;
    return offsetPages(
      async (pageOffset, pageLimit) => {
        const query = { limit: pageLimit, offset: pageOffset };
        const page = await this.#get<CheckpointsListResponse>(
          "/checkpoints",
          "list_user_checkpoints",
          rest,
          query,
        );
        return { items: page.checkpoints, totalCount: page.cursor?.totalCount };
      },
      offset,
      limit,
    );
  }

  /** Base model and adapter shape of a checkpoint, also of a published one of somebody else. */
  getWeightsInfo(path: string, options: RequestOptions = {}): Promise<WeightsInfo> {
    return this.#json("POST", "/weights_info", "get_weights_info_by_tinker_path", options, {
      tinker_path: path,
    });
  }

  async deleteCheckpoint(path: string, options: RequestOptions = {}): Promise<void> {
    await this.#json("DELETE", checkpointRoute(path), "delete_checkpoint_from_tinker_path", options);
  }

  /** Lets everybody read the checkpoint. */
  async publishCheckpoint(path: string, options: RequestOptions = {}): Promise<void> {
    await this.#json(
      "POST",
      `${checkpointRoute(path)}/publish`,
      "publish_checkpoint_from_tinker_path",
      options,
    );
  }

  async unpublishCheckpoint(path: string, options: RequestOptions = {}): Promise<void> {
    await this.#json(
      "DELETE",
      `${checkpointRoute(path)}/publish`,
      "unpublish_checkpoint_from_tinker_path",
      options,
    );
  }

  /** Lets the checkpoint expire after so many seconds from now; null = never. */
  async setCheckpointTtl(
    path: string,
    ttlSeconds: number | null,
    options: RequestOptions = {},
  ): Promise<void> {
    if (ttlSeconds !== null) checkTtlSeconds(ttlSeconds);
    const body = { ttl_seconds: ttlSeconds };
    await this.#json(
      "PUT",
      `${checkpointRoute(path)}/ttl`,
      "set_checkpoint_ttl_from_tinker_path",
      options,
      body,
    );
  }

  /** A URL, valid for a while, from which the checkpoint's archive can be fetched. Waits while the server builds it. */
  async getCheckpointArchiveUrl(path: string, options: RequestOptions = {}): Promise<CheckpointArchiveUrl> {
    for (let tries = 1; ; tries += 1) {
      try {
        const response = await this.#request({
          ...options,
          method: "GET",
          path: `/api/v1${checkpointRoute(path)}/archive`,
          accept: "application/json",
          redirect: "manual",
          maxRetries: 0,
          headers: { ...sdkHeaders("get_checkpoint_archive_url"), ...options.headers },
        });
        return this.#archiveUrl(response);
      } catch (error) {
        const building = error instanceof APIError && error.status === 503;
        if (!building || tries >= ARCHIVE_TRIES) throw error;
        this.#http.logger.info(
          `The archive of ${path} is being built; asking again in ${ARCHIVE_POLL_MS / 1000} s.`,
        );
        await this.#http.clock.sleep(ARCHIVE_POLL_MS, options.signal);
      }
    }
  }

  #archiveUrl(response: ApiResponse): CheckpointArchiveUrl {
    const location = response.headers.get("location");
    if (location === null) return fromWireJson<CheckpointArchiveUrl>(response.json());
    const expires = Date.parse(response.headers.get("expires") ?? "");
    const expiresAt = Number.isNaN(expires)
      ? this.#http.clock.wallNow() + ARCHIVE_DEFAULT_LIFETIME_MS
      : expires;
    return { url: location, expires: new Date(expiresAt).toISOString() };
  }

  /** Signed URLs of the files of weights saved with `saveWeightsExternal`. */
  getExternalWeightsUrls(path: string, options: RequestOptions = {}): Promise<ExternalWeightsUrls> {
    if (parseTinkerPath(path).checkpointType !== "external") {
      throw new ValidationError("path", `path must be tinker://<run>/external_weights/<name>, got "${path}"`);
    }
    return this.#get(`${checkpointRoute(path)}/external_weights_urls`, "get_external_weights_urls", options);
  }

  /** Copies weights into a project, without copying their bytes. Returns the path of the copy. */
  async copyWeights(
    path: string,
    options: RequestOptions & {
      /** Default: TINKER_PROJECT_ID. */
      destinationProjectId?: string | undefined;
      ttlSeconds?: number | undefined;
      weightsAccessToken?: string | undefined;
    } = {},
  ): Promise<string> {
    const { destinationProjectId, ttlSeconds, weightsAccessToken, ...rest } = options;
    const projectId = destinationProjectId ?? platform.env("TINKER_PROJECT_ID");
    if (!projectId) {
      throw new ValidationError(
        "destinationProjectId",
        "copyWeights needs a destinationProjectId, or TINKER_PROJECT_ID",
      );
    }
    checkTtlSeconds(ttlSeconds);
    const idempotencyKey = randomUuid();
    const token =
      weightsAccessToken === undefined ? {} : { "X-Tinker-Weights-Access-Token": weightsAccessToken };
    const copy = await this.#json<{ tinkerPath: string }>(
      "POST",
      "/copy_weights",
      "copy_weights",
      { ...rest, headers: { ...rest.headers, ...token } },
      { source_path: path, destination_project_id: projectId, ttl_seconds: ttlSeconds },
      idempotencyKey,
    );
    return copy.tinkerPath;
  }

  // ---- sessions and samplers

  listSessions(options: ListOptions & AccessOptions = {}): PageRequest<string> {
    const { limit = 20, offset = 0, accessScope = "owned", ...rest } = options;
    return offsetPages(
      async (pageOffset, pageLimit) => {
        const query = { limit: pageLimit, offset: pageOffset, access_scope: accessScope };
        return {
          items: (await this.#get<ListSessionsResponse>("/sessions", "list_sessions", rest, query)).sessions,
        };
      },
      offset,
      limit,
    );
  }

  getSession(sessionId: string, options: AccessOptions = {}): Promise<SessionInfo> {
    const { accessScope = "owned", ...rest } = options;
    return this.#get(`/sessions/${encode(sessionId)}`, "get_session", rest, { access_scope: accessScope });
  }

  /** Sessions by name, metadata, owner, project or status, newest first. The service calls this experimental. */
  searchSessions(
    search: SessionSearchRequest = {},
    options: RequestOptions = {},
  ): PageRequest<SessionSummary> {
    const body = toWireJson(checkSessionSearchRequest(search));
    return new PageRequest(async () => {
      const page = await this.#json<SessionSearchResponse>(
        "POST",
        "/sessions/search",
        "search_sessions",
        options,
        body,
      );
      const cursor = page.nextCursor;
      return new Page(page.sessions, {
        next: cursor ? () => this.searchSessions({ ...search, cursor }, options) : undefined,
      });
    });
  }

  async assignSessionProject(
    sessionId: string,
    projectId: string,
    options: RequestOptions = {},
  ): Promise<void> {
    const body = { project_id: projectId };
    await this.#json(
      "PUT",
      `/sessions/${encode(sessionId)}/project`,
      "assign_session_project",
      options,
      body,
    );
  }

  /** Waits until the trace of a session is built, and returns the URL to fetch it from. */
  async exportSessionTrace(sessionId: string, options: RequestOptions = {}): Promise<string> {
    const path = `/sessions/${encode(sessionId)}/trace_export`;
    for (;;) {
      const trace = await this.#get<TraceExport>(path, "export_session_trace", options);
      if (trace.status === "ready" && trace.url) return trace.url;
      if (trace.status === "failed")
        throw new TinkerError(`The trace of session ${sessionId} could not be built: ${trace.error}`);
      await this.#http.clock.sleep(TRACE_POLL_MS, options.signal);
    }
  }

  getSampler(samplerId: string, options: RequestOptions = {}): Promise<SamplerInfo> {
    return this.#get(`/samplers/${encode(samplerId)}`, "get_sampler", options);
  }

  // ---- administration

  getAuditLog(
    options: RequestOptions & {
      eventType?: AuditEventType | undefined;
      day?: string | Date | undefined;
    } = {},
  ): Promise<AuditLog> {
    const { eventType = "all", day, ...rest } = options;
    return this.#get("/audit", "get_audit_log", rest, {
      event_type: eventType,
      day: day instanceof Date ? day.toISOString().slice(0, 10) : day,
    });
  }

  /** Usage by the hour: whole UTC hours, 14 days at most. */
  getBillingUsage(window: BillingUsageRequest, options: RequestOptions = {}): Promise<BillingUsage> {
    const { startingOn, endingBefore } = checkBillingUsageRequest(window);
    return this.#get("/billing/usage/events", "get_billing_usage", options, {
      starting_on: startingOn,
      ending_before: endingBefore,
    });
  }

  getCurrentCheckpointStorageUsage(
    options: RequestOptions & { projectId?: string | undefined } = {},
  ): Promise<CheckpointStorageUsage> {
    const { projectId, ...rest } = options;
    const path = "/billing/usage/checkpoints/current";
    return this.#get(path, "get_current_checkpoint_storage_usage", rest, { project_id: projectId });
  }

  // ---- anything else

  /** Calls any endpoint, also one this SDK does not know: `await client.get("/api/v1/...")`. */
  get<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#endpoint("get", path, options);
  }

  post<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#endpoint("post", path, options);
  }

  put<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#endpoint("put", path, options);
  }

  delete<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#endpoint("delete", path, options);
  }

  #endpoint<T>(
    method: "get" | "post" | "put" | "delete",
    path: string,
    options?: EndpointOptions,
  ): APIPromise<T> {
    return new APIPromise<T>({
      parsed: async () => {
        await this.#connect();
        return this.#http[method]<T>(path, options).withResponse();
      },
      raw: async () => {
        await this.#connect();
        return this.#http[method](path, options).asResponse();
      },
    });
  }

  async close(): Promise<void> {
    const session = await this.#connected?.catch(() => undefined);
    await (session?.close() ?? this.#http.close());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #connect(): Promise<Session> {
    this.#connected ??= Session.connect(this.#http, this.metrics).catch((error) => {
      this.#connected = undefined;
      throw error;
    });
    return this.#connected;
  }

  async #request(request: ApiRequest): Promise<ApiResponse> {
    const { config } = await this.#connect();
    const { clock, logger } = this.#http;
    this.#billing ??= new BillingPause({
      clock,
      logger,
      maxPauseMs: config.billingExceptionMaxPauseDurationSec * 1000,
    });
    for (;;) {
      try {
        return await this.#http.exchange(request);
      } catch (error) {
        if (!this.#billing.shouldPause(error)) throw error;
        await this.#billing.wait(request.signal);
      }
    }
  }

  async #json<T>(
    method: "GET" | "POST" | "PUT" | "DELETE",
    path: string,
    sdkMethod: string,
    options: RequestOptions,
    json?: unknown,
    idempotencyKey?: string,
  ): Promise<T> {
    const headers = { ...sdkHeaders(sdkMethod), ...options.headers };
    const response = await this.#request({
      ...options,
      method,
      path: `/api/v1${path}`,
      headers,
      ...(json === undefined ? {} : { json }),
      ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    });
    return fromWireJson<T>(response.json());
  }

  async #get<T>(
    path: string,
    sdkMethod: string,
    options: RequestOptions,
    query?: ApiRequest["query"],
  ): Promise<T> {
    const headers = { ...sdkHeaders(sdkMethod), ...options.headers };
    const response = await this.#request({
      ...options,
      method: "GET",
      path: `/api/v1${path}`,
      headers,
      query,
    });
    return fromWireJson<T>(response.json());
  }
}

/** The server keeps account of which SDK methods are in use by these. */
function sdkHeaders(method: string): Record<string, string> {
  return { "x-sdk-version": PROTOCOL_VERSION, "x-sdk-method": method };
}

function encode(segment: string): string {
  return encodeURIComponent(segment).replaceAll("%3A", ":");
}

function checkpointRoute(path: string): string {
  const { trainingRunId, checkpointId } = parseTinkerPath(path);
  return `/training_runs/${encode(trainingRunId)}/checkpoints/${checkpointId.split("/").map(encode).join("/")}`;
}
