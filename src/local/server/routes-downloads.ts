import { open } from "node:fs/promises";
import { join } from "node:path";
import { pipeline, Readable } from "node:stream";
import { createGzip } from "node:zlib";
import { type CheckpointRecord, checkpointKinds } from "../store/checkpoint-store.js";
import type { App, Core } from "./core.js";
import { HttpError } from "./http-error.js";
import { openTar } from "./tar.js";

/** What signed links lead to; the signature stands in for the key. */
export function addDownloadRoutes(app: App, core: Core): void {
  app.get("/api/v1/downloads/archive", async (context) => {
    const record = signedCheckpoint(core, new URL(context.req.url));
    const folder = core.store.checkpoints.folderOf(record);
    const files = await core.store.checkpoints.files(record);
    const gzip = createGzip({ level: 1 });
    // `pipeline`, because an error on one side of a plain `pipe` ends the process.
    pipeline(Readable.from(await openTar(folder, files, record.createdAt)), gzip, () => undefined);
    return new Response(Readable.toWeb(gzip) as ReadableStream<Uint8Array>, {
      headers: {
        "content-type": "application/gzip",
        "content-disposition": `attachment; filename="${record.kind}-${record.name}.tar.gz"`,
      },
    });
  });

  app.get("/api/v1/downloads/file", async (context) => {
    const url = new URL(context.req.url);
    const record = signedCheckpoint(core, url);
    const file = url.searchParams.get("file") ?? "";
    if (!(await core.store.checkpoints.files(record)).includes(file)) {
      throw new HttpError(404, `The checkpoint has no file ${JSON.stringify(file)}.`);
    }
    const handle = await open(join(core.store.checkpoints.folderOf(record), file));
    const { size } = await handle.stat();
    return new Response(Readable.toWeb(handle.createReadStream()) as ReadableStream<Uint8Array>, {
      headers: { "content-type": "application/octet-stream", "content-length": String(size) },
    });
  });

  app.get("/api/v1/downloads/trace", async (context) => {
    const url = new URL(context.req.url);
    core.signer.check(url);
    const sessionId = url.searchParams.get("session") ?? "";
    const live = core.sessions.get(sessionId);
    const trace =
      live === undefined ? await core.store.sessions.readTrace(sessionId) : live.trace.toJson(sessionId);
    if (trace === undefined) throw new HttpError(404, `There is no trace of session ${sessionId}.`);
    return context.body(trace, 200, {
      "content-type": "application/json",
      "content-disposition": `attachment; filename="trace-${sessionId}.json"`,
    });
  });
}

function signedCheckpoint(core: Core, url: URL): CheckpointRecord {
  core.signer.check(url);
  const [runId, kindText, name] = (url.searchParams.get("path") ?? "").replace("tinker://", "").split("/");
  const kind = checkpointKinds.find((known) => known === kindText);
  const record = kind === undefined ? undefined : core.store.checkpoints.get(runId ?? "", kind, name ?? "");
  if (record === undefined)
    throw new HttpError(404, "The checkpoint of this link has been deleted or has expired.");
  return record;
}
