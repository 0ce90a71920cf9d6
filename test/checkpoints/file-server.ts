import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { CheckpointUrls } from "../../src/checkpoints/index.js";

export interface FileServer {
  rest: CheckpointUrls;
  /** Path -> content; a key of an archive is "/archive". */
  files: Map<string, Buffer>;
  /** One line for each request: path and range. */
  requests: string[];
  /** How often URLs were asked for. */
  signed: number;
  /** Bytes after which the next answers are cut off; used up one by one. */
  cuts: number[];
  /** Answers that come instead of the file; used up one by one. */
  instead: ((request: IncomingMessage, response: ServerResponse) => void)[];
  ranges: boolean;
  lengths: boolean;
  etags: boolean;
  /** URLs signed before this number are refused. */
  validFrom: number;
  expires: string;
  close(): Promise<void>;
}

/** A store of files behind signed URLs, over real sockets, that misbehaves on demand. */
export async function startFileServer(): Promise<FileServer> {
  const http = createServer((request, response) => {
    const url = new URL(request.url!, "http://x");
    const range = request.headers.range;
    server.requests.push(`${url.pathname}${range === undefined ? "" : ` ${range}`}`);
    const instead = server.instead.shift();
    if (instead !== undefined) return instead(request, response);
    if (Number(url.searchParams.get("signature")) < server.validFrom) {
      response.writeHead(403).end("<Code>AccessDenied</Code>Request has expired");
      return;
    }
    const content = server.files.get(url.pathname);
    if (content === undefined) return void response.writeHead(404).end();
    send(server, request, response, content);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const base = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const link = (path: string) => `${base}${path}?signature=${server.signed}`;
  const server: FileServer = {
    rest: {
      getCheckpointArchiveUrl: async () => {
        server.signed += 1;
        return { url: link("/archive"), expires: server.expires };
      },
      getExternalWeightsUrls: async () => {
        server.signed += 1;
        const names = [...server.files.keys()].map((path) => path.slice(1));
        return {
          urls: Object.fromEntries(names.map((name) => [name, link(`/${name}`)])),
          expires: server.expires,
        };
      },
    },
    files: new Map(),
    requests: [],
    signed: 0,
    cuts: [],
    instead: [],
    ranges: true,
    lengths: true,
    etags: true,
    validFrom: 0,
    expires: new Date(Date.now() + 900_000).toISOString(),
    close: () =>
      new Promise((resolve) => {
        http.close(() => resolve());
        http.closeAllConnections();
      }),
  };
  return server;
}

function send(server: FileServer, request: IncomingMessage, response: ServerResponse, content: Buffer): void {
  const etag = `"${createHash("sha1").update(content).digest("hex")}"`;
  const ifRange = request.headers["if-range"];
  const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
  const partial = server.ranges && from > 0 && (ifRange === undefined || ifRange === etag);
  if (partial && from >= content.length) {
    response.writeHead(416, { "content-range": `bytes */${content.length}` }).end();
    return;
  }
  const body = partial ? content.subarray(from) : content;
  response.writeHead(partial ? 206 : 200, {
    ...(server.lengths ? { "content-length": body.length } : {}),
    ...(server.etags ? { etag } : {}),
    ...(partial ? { "content-range": `bytes ${from}-${content.length - 1}/${content.length}` } : {}),
  });
  const cut = server.cuts.shift();
  if (cut === undefined || cut >= body.length) response.end(body);
  // Ended, not destroyed, so that the bytes before the cut do arrive.
  else response.write(body.subarray(0, cut), () => response.socket?.end());
}
