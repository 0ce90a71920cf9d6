import type { Agent, Client, Dispatcher, EnvHttpProxyAgent, Pool } from "undici";
import type { Connections } from "./platform-types.js";
import { type Release, Semaphore } from "./semaphore.js";
import type { OutgoingRequest, Sender } from "./sender.js";
import type { PoolName } from "./types.js";
import { sendThrough } from "./undici-sender.node.js";

interface PoolShape {
  /** Most connections to one server. */
  readonly connections: number;
  /** Requests that share one HTTP/2 connection. */
  readonly streams: number;
}

/**
 * A connection of HTTP/1.1 carries one request, and a poll holds it until there is news: hence as many
 * connections for polls as samples may be in flight. Training uploads are large and get a connection each.
 */
const POOL_SHAPES: Record<PoolName, PoolShape> = {
  train: { connections: 128, streams: 1 },
  sample: { connections: 512, streams: 50 },
  session: { connections: 16, streams: 50 },
  retrieve: { connections: 2048, streams: 50 },
  telemetry: { connections: 4, streams: 50 },
};

/**
 * Requests of a pool that may wait for a connection at once. undici opens a connection for each of them, but a burst
 * is served by few of them when the server is quick, and a server queues a few hundred new ones at most.
 */
const MAX_CONNECTING = 64;
const CONNECT_TIMEOUT_MS = 5_000;
const KEEP_ALIVE_MS = 30_000;

type Undici = typeof import("undici");

/** Pools of connections over undici, which is loaded with the first request. */
export class ConnectionPools implements Connections {
  readonly #dispatchers = new Map<PoolName, Dispatcher>();
  /** Servers seen to speak HTTP/2: a burst to one of them needs few connections, not one per request. */
  readonly #http2Origins = new Set<string>();
  readonly #retiring = new Set<Dispatcher>();
  readonly #connecting = new Map<PoolName, Semaphore>();
  #closed = false;

  senderFor(pool: PoolName): Sender {
    return async (request) => {
      const undici = await loadUndici();
      const onConnected = await this.#turnToConnect(pool, request);
      try {
        request.beforeConnecting?.();
        return await sendThrough(this.#dispatcherFor(pool, undici), request, onConnected);
      } finally {
        onConnected();
      }
    };
  }

  renew(pool: PoolName): void {
    const dispatcher = this.#dispatchers.get(pool);
    if (dispatcher === undefined) return;
    this.#dispatchers.delete(pool);
    this.#retiring.add(dispatcher);
    void dispatcher
      .close()
      .catch(() => {})
      .finally(() => this.#retiring.delete(dispatcher));
  }

  async close(): Promise<void> {
    this.#closed = true;
    const dispatchers = [...this.#dispatchers.values(), ...this.#retiring];
    this.#dispatchers.clear();
    await Promise.all(dispatchers.map((dispatcher) => dispatcher.destroy()));
  }

  async #turnToConnect(pool: PoolName, { url, signal }: OutgoingRequest): Promise<Release> {
    if (this.#http2Origins.size > 0 && this.#http2Origins.has(originOf(url))) return () => {};
    let connecting = this.#connecting.get(pool);
    if (connecting === undefined) {
      connecting = new Semaphore(MAX_CONNECTING);
      this.#connecting.set(pool, connecting);
    }
    return connecting.acquire(signal);
  }

  #dispatcherFor(pool: PoolName, undici: Undici): Dispatcher {
    if (this.#closed) throw new Error("The client is closed.");
    let dispatcher = this.#dispatchers.get(pool);
    if (dispatcher === undefined) {
      dispatcher = this.#createDispatcher(POOL_SHAPES[pool], undici);
      this.#dispatchers.set(pool, dispatcher);
    }
    return dispatcher;
  }

  #createDispatcher(shape: PoolShape, undici: Undici): Agent | EnvHttpProxyAgent {
    const common: Pool.Options = {
      connections: shape.connections,
      allowH2: true,
      connect: { timeout: CONNECT_TIMEOUT_MS },
      keepAliveTimeout: KEEP_ALIVE_MS,
      // The timeouts are ours: they know about progress, aborts and the injected clock.
      headersTimeout: 0,
      bodyTimeout: 0,
    };
    const factory = (origin: string | URL, options: object): Dispatcher =>
      new undici.Pool(origin, {
        ...common,
        ...options,
        connections: this.#connectionsTo(origin, shape),
        factory: this.#clientFactory(shape, undici),
      });
    if (!usesProxy()) return new undici.Agent({ ...common, factory });
    return new undici.EnvHttpProxyAgent({
      ...common,
      factory,
      // Plain HTTP goes through a proxy as it is; proxies rarely allow tunnels to port 80.
      proxyTunnel: false,
      proxyTls: { timeout: CONNECT_TIMEOUT_MS },
      requestTls: { timeout: CONNECT_TIMEOUT_MS, allowH2: true },
    } as EnvHttpProxyAgent.Options);
  }

  /** undici gives each waiting request a connection of its own until the first one stands, unless there is a limit. */
  #connectionsTo(origin: string | URL, shape: PoolShape): number {
    const speaksHttp2 = this.#http2Origins.has(originOf(origin));
    return speaksHttp2 ? Math.ceil(shape.connections / shape.streams) : shape.connections;
  }

  /** Clients that share their connection between `streams` requests exactly when the server speaks HTTP/2. */
  #clientFactory(shape: PoolShape, undici: Undici): (origin: string | URL, options: object) => Client {
    return (origin, options) => {
      const connect = (options as { connect: Connector }).connect;
      const key = originOf(origin);
      const client: Client = new undici.Client(origin, {
        ...options,
        connect: ((target: object, callback: ConnectCallback) => {
          connect(target, (error, socket) => {
            const isHttp2 = (socket as { alpnProtocol?: unknown } | null)?.alpnProtocol === "h2";
            if (isHttp2) this.#http2Origins.add(key);
            client.pipelining = isHttp2 ? shape.streams : 1;
            callback(error, socket);
          });
        }) as unknown as NonNullable<Client.Options["connect"]>,
      });
      return client;
    };
  }
}

function originOf(url: string | URL): string {
  return new URL(url).origin;
}

type ConnectCallback = (error: Error | null, socket: object | null) => void;
type Connector = (target: object, callback: ConnectCallback) => void;

let undiciModule: Promise<Undici> | undefined;

function loadUndici(): Promise<Undici> {
  undiciModule ??= import("undici");
  return undiciModule;
}

function usesProxy(): boolean {
  return ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"].some(
    (name) => (process.env[name] ?? "") !== "",
  );
}
