import { APIError } from "../../errors.js";
import {
  type APIResponse,
  BACK_OFF,
  backOffMs,
  type Clock,
  isRetryableError,
  type RequestOptions,
  requestTo,
} from "../../transport/index.js";
import { type CheckpointArchiveUrl, endpoints } from "../../wire/index.js";
import { type RestConnection, withSdkHeaders } from "./rest-connection.js";

const MAX_TRIES = 6;
const DEFAULT_LIFETIME_MS = 15 * 60_000;

/** Asks for a checkpoint's archive, and again while the server builds it. */
export async function findArchive(
  rest: RestConnection,
  checkpoint: { trainingRunId: string; folder: string; name: string },
  options: RequestOptions,
): Promise<CheckpointArchiveUrl> {
  const { clock, logger } = rest.http;
  const endpoint = endpoints.getCheckpointArchiveUrl;
  const request = requestTo(endpoint, checkpoint, {
    ...withSdkHeaders(endpoint, options),
    accept: "application/json",
    redirect: "manual",
    maxRetries: 0,
  });
  for (let tries = 1; ; tries += 1) {
    try {
      return archiveUrl(await rest.exchange(request), clock);
    } catch (error) {
      const isBuilding = error instanceof APIError && error.status === 503;
      if (tries >= MAX_TRIES || !(isBuilding || isRetryableError(error))) throw error;
      const delayMs = backOffMs(isBuilding ? BACK_OFF.archive : BACK_OFF.patient, 0);
      if (isBuilding) logger.info(`The archive is being built; asking again in ${delayMs / 1000} s.`);
      await clock.sleep(delayMs, options.signal);
    }
  }
}

/** The URL is in the body, or in a redirect. */
function archiveUrl(response: APIResponse, clock: Clock): CheckpointArchiveUrl {
  const location = response.headers.get("location");
  if (location === null) return endpoints.getCheckpointArchiveUrl.answer.fromJson(response.json());
  const expires = Date.parse(response.headers.get("expires") ?? "");
  const expiresAt = Number.isNaN(expires) ? clock.wallNow() + DEFAULT_LIFETIME_MS : expires;
  return { url: location, expires: new Date(expiresAt).toISOString() };
}
