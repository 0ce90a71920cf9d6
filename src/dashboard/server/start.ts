import type { Server as HttpServer } from "node:http";
import { createAdaptorServer } from "@hono/node-server";
import { closeHttp, listen } from "../../local/socket.js";
import { createDashboard, type DashboardOptions } from "./app.js";

const HOST = "127.0.0.1";
/** Pages are sent the last state of their runs, which takes a busy machine a while. */
const LAST_STATE_MS = 5000;

/** A dashboard that pages can be opened from. */
export interface RunningDashboard extends AsyncDisposable {
  /** With its token, for a browser. */
  readonly address: string;
  close(): Promise<void>;
}

/** Serves a dashboard to this machine alone. Port 0 takes a free one. */
export async function startDashboard(
  options: Omit<DashboardOptions, "basePath"> & { readonly port?: number | undefined },
): Promise<RunningDashboard> {
  const dashboard = createDashboard(options);
  const http = createAdaptorServer({ fetch: (request) => dashboard.fetch(request) }) as HttpServer;
  const port = await listen(http, options.port ?? 0, HOST);
  const close = async () => {
    dashboard.close();
    await closeHttp(http, LAST_STATE_MS);
  };
  return { address: `http://${HOST}:${port}/#token=${dashboard.token}`, close, [Symbol.asyncDispose]: close };
}
