import { TinkerError, ValidationError } from "../errors.js";
import { Metrics } from "../session/index.js";
import {
  type APIPromise,
  type EndpointOptions,
  type HttpClientOptions,
  jwtClaims,
  platform,
  type RequestOptions,
  randomUuid,
} from "../transport/index.js";
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
import { findArchive } from "./checkpoint-archive.js";
import { offsetPages, Page, PageRequest } from "./page.js";
import { RestConnection } from "./rest-connection.js";

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

/** Runs, checkpoints, sessions and usage. Needs no session, so nothing of it shows in the session list. */
export class RestClient {
  readonly metrics: Metrics;
  readonly #rest: RestConnection;

  constructor(options: HttpClientOptions = {}, metrics: Metrics = new Metrics()) {
    this.#rest = new RestConnection(options, metrics);
    this.metrics = metrics;
  }

  // ---- server

  /** Whether the server answers; asks for no credential. */
  async health(options: RequestOptions = {}): Promise<{ status: string }> {
    const response = await this.#rest.http.exchange({
      ...options,
      method: "GET",
      path: "/api/v1/healthz",
      pool: "session",
      expect: "json",
    });
    return fromWireJson<{ status: string }>(response.json());
  }

  getServerCapabilities(options: RequestOptions = {}): Promise<ServerCapabilities> {
    return this.#rest.get("/get_server_capabilities", "get_server_capabilities", options);
  }

  /** Who the credential belongs to. Needs a server that exchanges credentials for tokens, or a token as the key. */
  async whoami(): Promise<Identity> {
    await this.#rest.connect();
    const token = await this.#rest.http.auth.token();
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
        const page = await this.#rest.get<TrainingRunsResponse>(
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
    return this.#rest.get(`/training_runs/${encode(trainingRunId)}`, "get_training_run", rest, {
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
      const list = await this.#rest.get<CheckpointsListResponse>(path, "list_checkpoints", options);
      return new Page(list.checkpoints, { totalCount: list.checkpoints.length });
    });
  }

  /** The checkpoints of all the caller's runs. */
  listUserCheckpoints(options: ListOptions = {}): PageRequest<Checkpoint> {
    const { limit = 100, offset = 0, ...rest } = options;
    return offsetPages(
      async (pageOffset, pageLimit) => {
        const query = { limit: pageLimit, offset: pageOffset };
        const page = await this.#rest.get<CheckpointsListResponse>(
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
    return this.#rest.json("POST", "/weights_info", "get_weights_info_by_tinker_path", options, {
      tinker_path: path,
    });
  }

  async deleteCheckpoint(path: string, options: RequestOptions = {}): Promise<void> {
    await this.#rest.json("DELETE", checkpointRoute(path), "delete_checkpoint_from_tinker_path", options);
  }

  /** Lets everybody read the checkpoint. */
  async publishCheckpoint(path: string, options: RequestOptions = {}): Promise<void> {
    await this.#rest.json(
      "POST",
      `${checkpointRoute(path)}/publish`,
      "publish_checkpoint_from_tinker_path",
      options,
    );
  }

  async unpublishCheckpoint(path: string, options: RequestOptions = {}): Promise<void> {
    await this.#rest.json(
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
    await this.#rest.json(
      "PUT",
      `${checkpointRoute(path)}/ttl`,
      "set_checkpoint_ttl_from_tinker_path",
      options,
      body,
    );
  }

  /** A URL, valid for a while, from which the checkpoint's archive can be fetched. Waits while the server builds it. */
  getCheckpointArchiveUrl(path: string, options: RequestOptions = {}): Promise<CheckpointArchiveUrl> {
    return findArchive(this.#rest, checkpointRoute(path), options);
  }

  /** Signed URLs of the files of weights saved with `saveWeightsExternal`. */
  getExternalWeightsUrls(path: string, options: RequestOptions = {}): Promise<ExternalWeightsUrls> {
    if (parseTinkerPath(path).checkpointType !== "external") {
      throw new ValidationError("path", `path must be tinker://<run>/external_weights/<name>, got "${path}"`);
    }
    return this.#rest.get(
      `${checkpointRoute(path)}/external_weights_urls`,
      "get_external_weights_urls",
      options,
    );
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
    const token =
      weightsAccessToken === undefined ? {} : { "X-Tinker-Weights-Access-Token": weightsAccessToken };
    const copy = await this.#rest.json<{ tinkerPath: string }>(
      "POST",
      "/copy_weights",
      "copy_weights",
      { ...rest, headers: { ...rest.headers, ...token } },
      { source_path: path, destination_project_id: projectId, ttl_seconds: ttlSeconds },
      { idempotencyKey: randomUuid() },
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
          items: (await this.#rest.get<ListSessionsResponse>("/sessions", "list_sessions", rest, query))
            .sessions,
        };
      },
      offset,
      limit,
    );
  }

  getSession(sessionId: string, options: AccessOptions = {}): Promise<SessionInfo> {
    const { accessScope = "owned", ...rest } = options;
    return this.#rest.get(`/sessions/${encode(sessionId)}`, "get_session", rest, {
      access_scope: accessScope,
    });
  }

  /** Sessions by name, metadata, owner, project or status, newest first. The service calls this experimental. */
  searchSessions(
    search: SessionSearchRequest = {},
    options: RequestOptions = {},
  ): PageRequest<SessionSummary> {
    const body = toWireJson(checkSessionSearchRequest(search));
    return new PageRequest(async () => {
      const page = await this.#rest.json<SessionSearchResponse>(
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
    await this.#rest.json(
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
      const trace = await this.#rest.get<TraceExport>(path, "export_session_trace", options);
      if (trace.status === "ready" && trace.url) return trace.url;
      if (trace.status === "failed")
        throw new TinkerError(`The trace of session ${sessionId} could not be built: ${trace.error}`);
      await this.#rest.http.clock.sleep(TRACE_POLL_MS, options.signal);
    }
  }

  getSampler(samplerId: string, options: RequestOptions = {}): Promise<SamplerInfo> {
    return this.#rest.get(`/samplers/${encode(samplerId)}`, "get_sampler", options);
  }

  // ---- administration

  getAuditLog(
    options: RequestOptions & {
      eventType?: AuditEventType | undefined;
      day?: string | Date | undefined;
    } = {},
  ): Promise<AuditLog> {
    const { eventType = "all", day, ...rest } = options;
    return this.#rest.get("/audit", "get_audit_log", rest, {
      event_type: eventType,
      day: day instanceof Date ? day.toISOString().slice(0, 10) : day,
    });
  }

  /** Usage by the hour: whole UTC hours, 14 days at most. */
  getBillingUsage(window: BillingUsageRequest, options: RequestOptions = {}): Promise<BillingUsage> {
    const { startingOn, endingBefore } = checkBillingUsageRequest(window);
    return this.#rest.get("/billing/usage/events", "get_billing_usage", options, {
      starting_on: startingOn,
      ending_before: endingBefore,
    });
  }

  getCurrentCheckpointStorageUsage(
    options: RequestOptions & { projectId?: string | undefined } = {},
  ): Promise<CheckpointStorageUsage> {
    const { projectId, ...rest } = options;
    const path = "/billing/usage/checkpoints/current";
    return this.#rest.get(path, "get_current_checkpoint_storage_usage", rest, { project_id: projectId });
  }

  // ---- anything else

  /** Calls any endpoint, also one this SDK does not know: `await client.get("/api/v1/...")`. */
  get<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("get", path, options);
  }

  post<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("post", path, options);
  }

  put<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("put", path, options);
  }

  delete<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#rest.endpoint("delete", path, options);
  }

  async close(): Promise<void> {
    await this.#rest.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function encode(segment: string): string {
  return encodeURIComponent(segment).replaceAll("%3A", ":");
}

function checkpointRoute(path: string): string {
  const { trainingRunId, checkpointId } = parseTinkerPath(path);
  return `/training_runs/${encode(trainingRunId)}/checkpoints/${checkpointId.split("/").map(encode).join("/")}`;
}
