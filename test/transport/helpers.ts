import { onTestFinished } from "vitest";
import { HttpClient, type HttpClientOptions } from "../../src/transport/index.js";
import { FakeClock } from "../support/fake-clock.js";
import {
  type ProtocolServer,
  type ProtocolServerOptions,
  startProtocolServer,
} from "../support/protocol-server.js";

export const ROUTE = "POST /api/v1/thing";
export const REQUEST = { method: "POST", path: "/api/v1/thing", json: { a: 1 } } as const;

export async function serverForTest(options?: ProtocolServerOptions): Promise<ProtocolServer> {
  const server = await startProtocolServer(options);
  onTestFinished(() => server.close());
  return server;
}

/** A client of the server whose back-offs take no time and are recorded, without jitter. */
export function clientForTest(
  server: { url: string },
  options: HttpClientOptions = {},
): HttpClient & { clock: FakeClock } {
  const client = new HttpClient({
    baseURL: server.url,
    apiKey: "tml-test",
    logLevel: "off",
    clock: new FakeClock({ auto: true }),
    random: () => 0,
    ...options,
  });
  onTestFinished(() => client.close());
  return client as HttpClient & { clock: FakeClock };
}

/** Enough for what was written to a socket to be read, and for undici to hand the connection on: a few turns, however long they take. */
export async function turnsOfEventLoop(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setTimeout(resolve, 1));
}

/** Sets environment variables until the test ends. */
export function environment(values: Record<string, string | undefined>): void {
  const before = Object.fromEntries(Object.keys(values).map((name) => [name, process.env[name]]));
  const apply = (wanted: Record<string, string | undefined>) => {
    for (const [name, value] of Object.entries(wanted)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
  apply(values);
  onTestFinished(() => apply(before));
}

/** A JWT with these claims and no signature worth the name. */
export function jwtOf(claims: Record<string, unknown>): string {
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part({ alg: "none" })}.${part(claims)}.c2ln`;
}
