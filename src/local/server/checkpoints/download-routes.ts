import { open } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { parseTinkerPath } from "../../../wire/records/tinker-path.js";
import type { StoredCheckpoint } from "../../store/checkpoint-store.js";
import { HttpError } from "../http/http-error.js";
import { answering, contentResponse, streamPart } from "../http/partial-content.js";
import type { App } from "../http/route.js";
import type { Services } from "../services.js";
import { openArchive } from "./archive.js";

/** Downloads by signed links; the signature replaces the API key. */
export function addDownloadRoutes(app: App, services: Services): void {
  const { store, sessions, signer } = services;
  const { checkpoints } = store;

  app.get("/api/v1/downloads/archive", async (call) => {
    const record = signedCheckpoint(new URL(call.req.url));
    const files = await checkpoints.files(record);
    const archive = await openArchive(checkpoints.folderOf(record), files, record.createdAt);
    return answering(archive.close, () =>
      contentResponse(call.req.raw, {
        sizeBytes: archive.sizeBytes,
        etag: versionOf(record),
        modifiedAt: record.createdAt,
        headers: {
          "content-type": "application/gzip",
          "content-disposition": `attachment; filename="${record.kind}-${record.name}.tar.gz"`,
        },
        body: (start, end) => streamPart(archive.bytes(), start, end, archive.close),
      }),
    );
  });

  app.get("/api/v1/downloads/file", async (call) => {
    const url = new URL(call.req.url);
    const record = signedCheckpoint(url);
    const file = url.searchParams.get("file") ?? "";
    if (!(await checkpoints.files(record)).includes(file)) {
      throw new HttpError(404, `The checkpoint has no file ${JSON.stringify(file)}.`);
    }
    const handle = await open(join(checkpoints.folderOf(record), file));
    const { size } = await handle.stat();
    return answering(
      () => handle.close(),
      () =>
        contentResponse(call.req.raw, {
          sizeBytes: size,
          etag: versionOf(record),
          modifiedAt: record.createdAt,
          headers: { "content-type": "application/octet-stream" },
          body: (start, end) =>
            Readable.toWeb(handle.createReadStream({ start, end: end - 1 })) as ReadableStream<Uint8Array>,
        }),
    );
  });

  app.get("/api/v1/downloads/trace", async (call) => {
    const url = new URL(call.req.url);
    signer.check(url);
    const sessionId = url.searchParams.get("session") ?? "";
    const live = sessions.get(sessionId);
    const trace =
      live === undefined ? await store.sessions.readTrace(sessionId) : live.trace.toJson(sessionId);
    if (trace === undefined) throw new HttpError(404, `There is no trace of session ${sessionId}.`);
    return call.body(trace, 200, {
      "content-type": "application/json",
      "content-disposition": `attachment; filename="trace-${sessionId}.json"`,
    });
  });

  function signedCheckpoint(url: URL): StoredCheckpoint {
    signer.check(url);
    const { trainingRunId, kind, name } = parseTinkerPath(url.searchParams.get("path") ?? "");
    const record = checkpoints.get(trainingRunId, kind, name);
    if (record !== undefined) return record;
    throw new HttpError(404, "The checkpoint of this link has been deleted or has expired.");
  }
}

/** A checkpoint's files never change; one saved over it is made at another time. */
function versionOf(record: StoredCheckpoint): string {
  return `"${record.createdAt}-${record.sizeBytes}"`;
}
