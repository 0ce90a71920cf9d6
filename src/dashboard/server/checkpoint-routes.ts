import { randomBytes } from "node:crypto";
import type { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { z } from "zod";
import { messageOf } from "../../errors.js";
import { isTinkerPath, parseTinkerPath } from "../../wire/records/tinker-path.js";
import type { CheckpointList, ShownCheckpoint } from "../api.js";
import type { ShownFolder } from "../runs/run-folders.js";
import { isFinal } from "../runs/run-summaries.js";
import type { DashboardParts } from "./app.js";
import { bodyOf } from "./body.js";
import { serverName } from "./server-status.js";
import type { TinkerServer } from "./tinker-server.js";

const MAX_LISTED = 1000;
const MAX_TTL_SECONDS = 10 * 365 * 86_400;
/** How long the address of a download can be opened, once. */
const TICKET_MS = 60_000;

const pathSchema = z
  .string()
  .max(1000)
  .refine(isTinkerPath, "must be the path of a checkpoint, as tinker://...");
const downloadSchema = z.strictObject({ path: pathSchema });
const expirySchema = z.strictObject({
  path: pathSchema,
  /** Null: never. */
  ttlSeconds: z.int().min(1).max(MAX_TTL_SECONDS).nullable(),
});
const deleteSchema = z.strictObject({ path: pathSchema, name: z.string() });

/** Checkpoints of the folders joined with those of the server, and what can be done with them. */
export function addCheckpointRoutes(app: Hono, parts: DashboardParts): void {
  const { server } = parts;
  app.get("/api/checkpoints", async (context) =>
    context.json(await listCheckpoints(parts, context.req.queries("run"))),
  );

  app.post("/api/checkpoints/expiry", async (context) => {
    const { path, ttlSeconds } = await bodyOf(context, expirySchema);
    await (await changeable(parts).rest()).setCheckpointTtl(path, ttlSeconds);
    return context.json({});
  });

  app.post("/api/checkpoints/delete", async (context) => {
    const { path, name } = await bodyOf(context, deleteSchema);
    const wanted = parseTinkerPath(path).name;
    if (name !== wanted) throw new HTTPException(400, { message: `Type ${wanted} to delete it.` });
    await (await changeable(parts).rest()).deleteCheckpoint(path);
    return context.json({});
  });

  // A browser that saves a file sends no token: the page fetches an address that works once instead.
  const tickets = new Map<string, { readonly path: string; readonly url: string }>();
  app.post("/api/checkpoints/download", async (context) => {
    const { path } = await bodyOf(context, downloadSchema);
    // Asked for here, where the page can tell what went wrong.
    const { url } = await (await serverIn(server).rest()).getCheckpointArchiveUrl(path);
    const ticket = randomBytes(24).toString("base64url");
    tickets.set(ticket, { path, url });
    setTimeout(() => tickets.delete(ticket), TICKET_MS).unref();
    return context.json({ address: `./downloads/${ticket}` });
  });
  app.get("/downloads/:ticket", async (context) => {
    const wanted = tickets.get(context.req.param("ticket"));
    if (wanted === undefined)
      throw new HTTPException(404, { message: "This address worked once, or never." });
    tickets.delete(context.req.param("ticket"));
    const { path, url } = wanted;
    const archive = await (server?.fetch ?? fetch)(url, { signal: context.req.raw.signal });
    if (!archive.ok || archive.body === null)
      throw new HTTPException(502, { message: `The archive could not be fetched: ${archive.status}.` });
    const { trainingRunId, name } = parseTinkerPath(path);
    const file = `${trainingRunId}-${name}.tar`.replaceAll(/[^\w.-]+/g, "-");
    // The decompressed body is longer than this header says.
    const isPacked = archive.headers.has("content-encoding");
    const length = isPacked ? null : archive.headers.get("content-length");
    return context.body(archive.body, 200, {
      "content-type": "application/x-tar",
      "content-disposition": `attachment; filename="${file}"`,
      ...(length === null ? {} : { "content-length": length }),
    });
  });
}

function serverIn(server: TinkerServer | undefined): TinkerServer {
  if (server !== undefined) return server;
  throw new HTTPException(409, {
    message: "This dashboard has no server: start it with --base-url or a key.",
  });
}

/** The server, for what is not allowed where things are only looked at. */
export function changeable({ server, isReadOnly }: DashboardParts): TinkerServer {
  if (isReadOnly) throw new HTTPException(403, { message: "This dashboard was started with --read-only." });
  return serverIn(server);
}

async function listCheckpoints(
  parts: DashboardParts,
  runs: readonly string[] | undefined,
): Promise<CheckpointList> {
  const { folders, summaries, server } = parts;
  const found = new Map<string, ShownCheckpoint>();
  for (const folder of await folders.list()) {
    if (runs !== undefined && !runs.includes(folder.id)) continue;
    for (const line of await summaries.checkpoints(folder))
      for (const checkpoint of checkpointsIn(line, folder)) found.set(checkpoint.path, checkpoint);
  }
  const answer = { server: serverName(server) };
  if (server === undefined) return { ...answer, checkpoints: [...found.values()], isCut: false };
  try {
    let listed = 0;
    for await (const checkpoint of (await server.rest()).listUserCheckpoints()) {
      listed += 1;
      if (listed > MAX_LISTED) break;
      const { tinkerPath: path, checkpointType: kind, time, sizeBytes, expiresAt } = checkpoint;
      const known = found.get(path);
      if (known === undefined && runs !== undefined) continue;
      const state = { time, sizeBytes, expiresAt, isPublic: checkpoint.public === true };
      found.set(path, { path, kind, name: path.slice(path.lastIndexOf("/") + 1), ...known, server: state });
    }
    return { ...answer, checkpoints: [...found.values()], isCut: listed > MAX_LISTED };
  } catch (error) {
    return { ...answer, checkpoints: [...found.values()], problem: messageOf(error), isCut: false };
  }
}

/** A line of `checkpoints.jsonl` names weights to train on from, weights to sample from, or both. */
function checkpointsIn(
  line: Readonly<Record<string, unknown>>,
  { id }: ShownFolder,
): readonly ShownCheckpoint[] {
  const { name, batch, metric, value } = line;
  const label = typeof name === "string" ? name : "";
  const step = /^\d+$/.test(label) ? Number(label) : batch;
  const shared = {
    name: label,
    run: id,
    ...(typeof step === "number" && !isFinal(line) ? { step } : {}),
    ...(isFinal(line) ? { isFinal: true } : {}),
    ...(typeof metric === "string" && typeof value === "number"
      ? { note: `${metric} ${value.toPrecision(4)}` }
      : {}),
  };
  const paths = [
    [line["state_path"], "training"],
    [line["sampler_path"], "sampler"],
  ] as const;
  return paths.flatMap(([path, kind]) => (typeof path === "string" ? { path, kind, ...shared } : []));
}
