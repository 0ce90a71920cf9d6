/** A Tinker server for tests: in this process, over real sockets, answering what a test tells it to. */
import { readFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import { createSecureServer } from "node:http2";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";

export interface RecordedRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  readonly body: Uint8Array;
  readonly httpVersion: string;
  /** Which connection it came over, counted from 1. */
  readonly connection: number;
  readonly receivedAtMs: number;
  json(): unknown;
}

export interface ScriptedAnswer {
  /** 200 when absent. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  readonly bytes?: Uint8Array;
  readonly text?: string;
  /** Time before the headers are sent; Infinity leaves the client waiting for ever. */
  readonly delayMs?: number;
  /** Breaks the connection instead of answering, or after half of the body. */
  readonly drop?: "before" | "mid-body";
  /** Sends the first half of the body, and the rest after this time. */
  readonly stallMs?: number;
}

export type Handler = (request: RecordedRequest) => ScriptedAnswer | Promise<ScriptedAnswer>;

/** One answer for ever, a list used up in order whose last entry repeats, or a function. */
export type Script = ScriptedAnswer | readonly (ScriptedAnswer | Handler)[] | Handler;

export interface ProtocolServerOptions {
  /** TLS with the certificate in fixtures/, speaking HTTP/2 or only HTTP/1.1. */
  readonly tls?: "http2" | "http1";
  /** Answers preflight requests and lets every origin in, for browsers. */
  readonly cors?: boolean;
}

export async function startProtocolServer(options: ProtocolServerOptions = {}): Promise<ProtocolServer> {
  const server = new ProtocolServer(options);
  await server.listen();
  return server;
}

const fixture = (name: string) => readFileSync(new URL(`./fixtures/${name}`, import.meta.url));

export class ProtocolServer {
  /** Every request that arrived, in order. */
  readonly requests: RecordedRequest[] = [];
  url = "";
  /** Connections accepted since the start. */
  connectionsSeen = 0;
  readonly #options: ProtocolServerOptions;
  readonly #server: Server;
  readonly #sockets = new Map<Socket, number>();
  readonly #handlers = new Map<string, Handler>();
  readonly #futures = new Map<string, Handler>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #nextId = 0;

  constructor(options: ProtocolServerOptions) {
    this.#options = options;
    const listener = (request: IncomingMessage, response: ServerResponse) =>
      void this.#serve(request, response);
    this.#server = createListener(options.tls, listener);
    // Node closes idle connections after 5 s, which a busy test machine turns into lost requests.
    this.#server.keepAliveTimeout = 60_000;
    this.#server.on("connection", (socket: Socket) => {
      this.connectionsSeen += 1;
      this.#sockets.set(socket, this.connectionsSeen);
      socket.on("error", () => {});
      socket.once("close", () => this.#sockets.delete(socket));
    });
    this.#addDefaults();
  }

  /** Begins to serve; after `stop` at the same address again. */
  async listen(): Promise<void> {
    const earlier = this.url === "" ? 0 : Number(new URL(this.url).port);
    await new Promise<void>((resolve) => {
      // Another connection may have the port for a moment.
      this.#server.on("error", () => setTimeout(() => this.#server.listen(earlier, "127.0.0.1"), 50));
      this.#server.listen(earlier, "127.0.0.1").once("listening", resolve);
    });
    this.#server.removeAllListeners("error");
    const { port } = this.#server.address() as AddressInfo;
    this.url = `${this.#options.tls === undefined ? "http" : "https"}://127.0.0.1:${port}`;
  }

  /** Says how to answer a route such as "POST /api/v1/asample"; "*" stands for one path segment. */
  on(route: string, script: Script): this {
    this.#handlers.set(route, asHandler(script));
    return this;
  }

  /** Says how polls for this request id are answered. */
  future(requestId: string, ...answers: readonly (ScriptedAnswer | Handler)[]): this {
    this.#futures.set(requestId, asHandler(answers));
    return this;
  }

  /** Lets a route accept every request at once with a new request id, whose polls are answered by `result`. */
  accept(route: string, result: Script): this {
    return this.on(route, (request) => {
      const requestId = this.newId("future");
      this.#futures.set(requestId, typeof result === "function" ? () => result(request) : asHandler(result));
      return { json: { request_id: requestId } };
    });
  }

  newId(prefix: string): string {
    this.#nextId += 1;
    return `${prefix}-${this.#nextId}`;
  }

  /** The recorded requests of one route. */
  requestsTo(route: string): RecordedRequest[] {
    return this.requests.filter((request) => matches(route, `${request.method} ${request.path}`));
  }

  openConnections(): number {
    return this.#sockets.size;
  }

  /** Bytes written by handlers that the clients have not yet taken. */
  unsentBytes(): number {
    let bytes = 0;
    for (const socket of this.#sockets.keys()) bytes += socket.writableLength;
    return bytes;
  }

  /** Breaks every connection, without a word. */
  dropConnections(): void {
    for (const socket of [...this.#sockets.keys()]) socket.destroy();
  }

  /** Breaks every connection and refuses new ones, as a machine that is down. */
  async stop(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.dropConnections();
    await closed;
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await this.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #addDefaults(): void {
    this.on("GET /api/v1/healthz", { json: { status: "ok" } });
    this.on("POST /api/v1/client/config", { json: {} });
    this.on("POST /api/v1/client/dynamic_config", { status: 404, json: { detail: "Not Found" } });
    this.on("POST /api/v1/create_session", () => ({
      json: { type: "create_session", session_id: this.newId("session") },
    }));
    this.on("POST /api/v1/session_heartbeat", { json: { type: "session_heartbeat" } });
    this.on("POST /api/v1/sessions/*/finish", { json: {} });
    this.on("POST /api/v1/telemetry", { json: { status: "accepted" } });
    this.on("GET /api/v1/get_server_capabilities", {
      json: { supported_models: [{ model_name: "test/tiny", max_context_length: 1024 }] },
    });
    this.accept("POST /api/v1/create_model", (request) => {
      const { session_id, model_seq_id } = request.json() as { session_id: string; model_seq_id: number };
      return { json: { model_id: `${session_id}:train:${model_seq_id}` } };
    });
    this.on("POST /api/v1/create_sampling_session", () => ({
      json: { sampling_session_id: this.newId("sampler") },
    }));
    this.on("POST /api/v1/retrieve_future", (request) => {
      const { request_id } = request.json() as { request_id: string };
      return (
        this.#futures.get(request_id)?.(request) ?? {
          status: 404,
          json: { detail: `no future ${request_id}` },
        }
      );
    });
  }

  async #serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    incoming.on("error", () => {});
    outgoing.on("error", () => {});
    try {
      for await (const chunk of incoming) chunks.push(chunk as Buffer);
    } catch {
      return;
    }
    if (this.#options.cors) {
      outgoing.setHeader("access-control-allow-origin", "*");
      outgoing.setHeader("access-control-allow-headers", "*");
      outgoing.setHeader("access-control-allow-methods", "*");
      outgoing.setHeader("access-control-expose-headers", "*");
      if (incoming.method === "OPTIONS") return void outgoing.writeHead(204).end();
    }
    const socket = rawSocket(incoming);
    const request = record(incoming, Buffer.concat(chunks), this.#sockets.get(socket) ?? 0);
    this.requests.push(request);
    await this.#answer(socket, outgoing, await this.#handlerFor(request)(request));
  }

  #handlerFor(request: RecordedRequest): Handler {
    const route = `${request.method} ${request.path}`;
    const exact = this.#handlers.get(route);
    if (exact !== undefined) return exact;
    for (const [pattern, handler] of this.#handlers) if (matches(pattern, route)) return handler;
    return () => ({ status: 404, json: { detail: `No script for ${route}` } });
  }

  async #answer(socket: Socket, outgoing: ServerResponse, answer: ScriptedAnswer): Promise<void> {
    if (answer.delayMs !== undefined) await this.#wait(answer.delayMs);
    if (answer.drop === "before") return void socket.destroy();
    const { body, contentType } = bodyOf(answer);
    const headers: Record<string, string> = { ...answer.headers };
    if (contentType !== undefined && headers["content-type"] === undefined)
      headers["content-type"] = contentType;
    if (headers["content-length"] === undefined) headers["content-length"] = String(body.byteLength);
    outgoing.writeHead(answer.status ?? 200, headers);
    if (answer.drop === "mid-body" || answer.stallMs !== undefined) {
      const half = Math.floor(body.byteLength / 2);
      outgoing.write(body.subarray(0, half));
      if (answer.drop === "mid-body") {
        await this.#wait(10);
        return void socket.destroy();
      }
      await this.#wait(answer.stallMs ?? 0);
      outgoing.end(body.subarray(half));
      return;
    }
    outgoing.end(body);
  }

  #wait(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      if (delayMs === Number.POSITIVE_INFINITY) return;
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        resolve();
      }, delayMs);
      this.#timers.add(timer);
    });
  }
}

type Server = ReturnType<typeof createServer>;

function createListener(
  tls: ProtocolServerOptions["tls"],
  listener: (request: IncomingMessage, response: ServerResponse) => void,
): Server {
  if (tls === undefined) return createServer(listener);
  const certificate = { key: fixture("localhost-key.pem"), cert: fixture("localhost-cert.pem") };
  if (tls === "http1") return createHttpsServer(certificate, listener);
  // Node's HTTP/2 server offers the same requests and responses under types of its own.
  return createSecureServer({ ...certificate, allowHTTP1: true }, listener as never) as unknown as Server;
}

/** HTTP/2 hides the socket behind a proxy that forbids destroying it. */
function rawSocket(incoming: IncomingMessage): Socket {
  const session = (incoming as { stream?: { session?: { socket: Socket } } }).stream?.session;
  const socket = (session?.socket ?? incoming.socket) as Socket & { _parent?: Socket };
  return socket._parent ?? socket;
}

function record(incoming: IncomingMessage, body: Buffer, connection: number): RecordedRequest {
  const url = new URL(incoming.url ?? "/", "http://host");
  return {
    method: incoming.method ?? "",
    path: decodeURIComponent(url.pathname),
    query: url.searchParams,
    headers: incoming.headers,
    body,
    httpVersion: incoming.httpVersion,
    connection,
    receivedAtMs: performance.now(),
    json: () => JSON.parse(body.toString("utf8")) as unknown,
  };
}

function bodyOf(answer: ScriptedAnswer): { body: Uint8Array; contentType: string | undefined } {
  if (answer.bytes !== undefined) return { body: answer.bytes, contentType: "application/x-protobuf" };
  if (answer.text !== undefined) return { body: Buffer.from(answer.text), contentType: "text/plain" };
  if (answer.json === undefined) return { body: new Uint8Array(0), contentType: undefined };
  return { body: Buffer.from(JSON.stringify(answer.json)), contentType: "application/json" };
}

function asHandler(script: Script): Handler {
  if (typeof script === "function") return script;
  const answers: readonly (ScriptedAnswer | Handler)[] = Array.isArray(script) ? script : [script];
  let next = 0;
  return (request) => {
    const answer = answers[Math.min(next, answers.length - 1)] ?? {};
    next += 1;
    return typeof answer === "function" ? answer(request) : answer;
  };
}

function matches(pattern: string, route: string): boolean {
  const expected = pattern.split("/");
  const actual = route.split("/");
  return expected.length === actual.length && expected.every((part, i) => part === "*" || part === actual[i]);
}
