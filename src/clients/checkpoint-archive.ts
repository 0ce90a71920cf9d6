import { APIError } from "../errors.js";
import { type ApiResponse, type Clock, isRetryableError, type RequestOptions } from "../transport/index.js";
import { type CheckpointArchiveUrl, fromWireJson } from "../wire/index.js";
import { type RestConnection, sdkHeaders } from "./rest-connection.js";

const WAIT_MS = 30_000;
const WAIT_AFTER_TROUBLE_MS = 1_000;
const TRIES = 6;
const DEFAULT_LIFETIME_MS = 15 * 60_000;

/** Asks where a checkpoint's archive is, and again while the server builds it. */
export async function findArchive(
  rest: RestConnection,
  checkpointRoute: string,
  options: RequestOptions,
): Promise<CheckpointArchiveUrl> {
  const { clock, logger } = rest.http;
  for (let tries = 1; ; tries += 1) {
    try {
      const response = await rest.request({
        ...options,
        method: "GET",
        path: `/api/v1${checkpointRoute}/archive`,
        accept: "application/json",
        redirect: "manual",
        maxRetries: 0,
        headers: { ...sdkHeaders("get_checkpoint_archive_url"), ...options.headers },
      });
      return archiveUrl(response, clock);
    } catch (error) {
      const building = error instanceof APIError && error.status === 503;
      if (tries >= TRIES || !(building || isRetryableError(error))) throw error;
      if (building) logger.info(`The archive is being built; asking again in ${WAIT_MS / 1000} s.`);
      await clock.sleep(building ? WAIT_MS : WAIT_AFTER_TROUBLE_MS, options.signal);
    }
  }
}

/** In the body, or behind a redirect. */
function archiveUrl(response: ApiResponse, clock: Clock): CheckpointArchiveUrl {
  const location = response.headers.get("location");
  if (location === null) return fromWireJson<CheckpointArchiveUrl>(response.json());
  const expires = Date.parse(response.headers.get("expires") ?? "");
  const expiresAt = Number.isNaN(expires) ? clock.wallNow() + DEFAULT_LIFETIME_MS : expires;
  return { url: location, expires: new Date(expiresAt).toISOString() };
}
