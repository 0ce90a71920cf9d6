/** A backend behind a socket that writes down every request before the backend answers it. */
import type { Server } from "node:http";
import { createAdaptorServer } from "@hono/node-server";
import { type LocalBackend, type LocalBackendOptions, startLocalBackend } from "../../src/local/index.js";

export interface RecordedRequest {
  readonly method: string;
  readonly path: string;
  readonly query: Record<string, string>;
  readonly contentType: string;
  readonly body: Uint8Array;
  readonly status: number;
}

export interface Recorder extends AsyncDisposable {
  readonly baseURL: string;
  readonly backend: LocalBackend;
  /** In order of arrival. */
  readonly requests: RecordedRequest[];
}

export async function startRecorder(options: LocalBackendOptions): Promise<Recorder> {
  const backend = await startLocalBackend({ ...options, listen: false });
  const requests: RecordedRequest[] = [];
  const http = createAdaptorServer({
    fetch: async (request: Request) => {
      const url = new URL(request.url);
      const body = new Uint8Array(await request.arrayBuffer());
      const entry = {
        method: request.method,
        path: url.pathname.replace("/api/v1", ""),
        query: Object.fromEntries(url.searchParams),
        contentType: request.headers.get("content-type") ?? "",
        body,
        status: 0,
      };
      requests.push(entry);
      const { method, headers, signal } = request;
      const answer = await backend.fetch(
        new Request(request.url, { method, headers, signal, ...(body.length > 0 && { body }) }),
      );
      entry.status = answer.status;
      return answer;
    },
  }) as Server;
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const address = http.address();
  if (address === null || typeof address === "string") throw new Error("The recorder has no port.");
  return {
    baseURL: `http://127.0.0.1:${address.port}`,
    backend,
    requests,
    [Symbol.asyncDispose]: async () => {
      await backend.close();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}
