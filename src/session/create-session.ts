import { NotFoundError, TinkerError } from "../errors.js";
import { type HttpClient, platform } from "../transport/index.js";
import { PROTOCOL_VERSION } from "../version.js";
import { CHECK_BASE_URL, endpoints } from "../wire/index.js";
import { startupCall } from "./billing-pause.js";

/** Settings of a new session: tags, metadata, project and display name. */
export interface ClientSessionOptions {
  /** Tags of the session, added to those of TINKER_TAGS. */
  tags?: readonly string[] | undefined;
  userMetadata?: Readonly<Record<string, unknown>> | undefined;
  /** Project that the session belongs to. Default: TINKER_PROJECT_ID. */
  projectId?: string | undefined;
  /** For people to find the session by; need not be unique. */
  displayName?: string | undefined;
}

/** Creates the session, logs what the server has to say about it, and returns its id. */
export async function createSession(http: HttpClient, options: ClientSessionOptions): Promise<string> {
  const endpoint = endpoints.createSession;
  const request = {
    tags: mergeTags(platform.env("TINKER_TAGS"), options.tags),
    userMetadata: options.userMetadata ?? {},
    sdkVersion: PROTOCOL_VERSION,
    projectId: options.projectId ?? (platform.env("TINKER_PROJECT_ID") || undefined),
    displayName: options.displayName,
  };
  const answer = await startupCall(http, endpoint, request).catch((error: unknown) => {
    throw error instanceof NotFoundError
      ? new TinkerError(`${error.message} ${CHECK_BASE_URL}`, { cause: error })
      : error;
  });
  if (typeof answer?.sessionId !== "string" || answer.sessionId === "") {
    throw new TinkerError(`POST ${endpoint.path} answered without the id of a session. ${CHECK_BASE_URL}`);
  }
  if (answer.infoMessage) http.logger.info(answer.infoMessage);
  if (answer.warningMessage) http.logger.warn(answer.warningMessage);
  if (answer.errorMessage) http.logger.error(answer.errorMessage);
  return answer.sessionId;
}

function mergeTags(fromEnvironment: string | undefined, given: readonly string[] | undefined): string[] {
  const tags = [...(fromEnvironment ?? "").split(","), ...(given ?? [])].map((tag) => tag.trim());
  return [...new Set(tags.filter((tag) => tag !== ""))];
}
