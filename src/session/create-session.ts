import { TinkerError } from "../errors.js";
import { type HttpClient, platform } from "../transport/index.js";
import { PROTOCOL_VERSION } from "../version.js";
import {
  type CreateSessionRequest,
  type CreateSessionResponse,
  fromWireJson,
  toWireJson,
} from "../wire/index.js";
import { startupExchange } from "./startup-exchange.js";

export interface SessionOptions {
  /** Added to those of TINKER_TAGS. */
  tags?: readonly string[] | undefined;
  userMetadata?: Readonly<Record<string, unknown>> | undefined;
  /** Default: TINKER_PROJECT_ID. */
  projectId?: string | undefined;
  /** For people to find the session by; need not be unique. */
  displayName?: string | undefined;
}

const PATH = "/api/v1/create_session";

/** Creates the session, logs what the server has to say about it, and returns its id. */
export async function createSession(http: HttpClient, options: SessionOptions): Promise<string> {
  const projectId = options.projectId ?? (platform.env("TINKER_PROJECT_ID") || undefined);
  const request: CreateSessionRequest = {
    tags: mergeTags(platform.env("TINKER_TAGS"), options.tags),
    userMetadata: options.userMetadata ?? {},
    sdkVersion: PROTOCOL_VERSION,
    ...(projectId !== undefined && { projectId }),
    ...(options.displayName !== undefined && { displayName: options.displayName }),
  };
  const response = await startupExchange(http, {
    method: "POST",
    path: PATH,
    json: { ...(toWireJson(request) as object), type: "create_session" },
    pool: "session",
  });
  const answer = readAnswer(response.json());
  if (answer.infoMessage) http.logger.info(answer.infoMessage);
  if (answer.warningMessage) http.logger.warn(answer.warningMessage);
  if (answer.errorMessage) http.logger.error(answer.errorMessage);
  return answer.sessionId;
}

function readAnswer(body: unknown): CreateSessionResponse {
  const answer = fromWireJson<CreateSessionResponse>(body);
  if (typeof answer?.sessionId === "string" && answer.sessionId !== "") return answer;
  throw new TinkerError(
    `POST ${PATH} answered without a session_id; check that TINKER_BASE_URL or the baseURL option points at a Tinker server.`,
  );
}

function mergeTags(fromEnvironment: string | undefined, given: readonly string[] | undefined): string[] {
  const tags = [...(fromEnvironment ?? "").split(","), ...(given ?? [])].map((tag) => tag.trim());
  return [...new Set(tags.filter((tag) => tag !== ""))];
}
