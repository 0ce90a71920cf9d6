import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { RestClient, ServiceClient, type TrainingClient } from "../../src/index.js";
import type { Engine } from "../../src/local/engine/engine.js";
import { type LocalBackendOptions, startLocalBackend } from "../../src/local/index.js";
import { Semaphore } from "../../src/transport/semaphore.js";
import { FakeEngine, fakeModel } from "../local/fake-engine.js";
import type { Finished } from "./command.js";
import { runWarm } from "./warm-command.js";

/** The built-in backend behind a socket that tests can make misbehave, and the command line to go with it. */
export interface CliServer extends AsyncDisposable {
  readonly url: string;
  /** A folder of this server's own, where commands run. */
  readonly folder: string;
  readonly env: Record<string, string>;
  /** One line for each request: method, path, range. */
  readonly requests: string[];
  /** Answers a request in the backend's place when it returns true. */
  intercept: (request: IncomingMessage, response: ServerResponse) => Promise<boolean> | boolean;
  /** The same backend, without a command and without a socket: to see what a command did. */
  readonly rest: RestClient;
  /** What the backend itself would answer. */
  answer(request: IncomingMessage): Promise<Response>;
  /** Runs the command against this server. */
  cli(args: readonly string[], env?: Record<string, string>): Promise<Finished>;
  /** Runs it with --json, and reads what it prints. */
  json<T>(args: readonly string[]): Promise<T>;
  /** A new run, in a session that ends with the server. */
  train(
    options?: ConstructorParameters<typeof ServiceClient>[0] & { metadata?: Record<string, string> },
  ): Promise<TrainingClient>;
}

/** More at once would only wait for each other, and time out. */
const processes = new Semaphore(3);

/** No key, no colours and no home of the person who runs the tests. */
export const cleanEnv = (folder: string): Record<string, string> => ({
  HOME: folder,
  HF_HOME: join(folder, "hf"),
  HF_TOKEN: "",
  NO_COLOR: "",
  TINKER_API_KEY: "",
  TINKER_BASE_URL: "",
  TINKER_CREDENTIAL_CMD: "",
  TINKER_PROJECT_ID: "",
  TINKER_LOG: "",
});

export async function startCliServer(
  options: LocalBackendOptions & { engine?: Engine; baseModel?: string } = {},
): Promise<CliServer> {
  const folder = mkdtempSync(join(tmpdir(), "tinkerts-cli-"));
  const { baseModel = fakeModel.name, ...backendOptions } = options;
  const backend = await startLocalBackend({
    engine: new FakeEngine(),
    listen: false,
    dataDir: join(folder, "data"),
    ...backendOptions,
  });
  const services: ServiceClient[] = [];
  const http = createServer((request, response) => {
    const { range } = request.headers;
    server.requests.push(
      `${request.method} ${request.url!.split("?")[0]}${range === undefined ? "" : ` ${range}`}`,
    );
    const handle = async () => {
      if (await server.intercept(request, response)) return;
      const answer = await server.answer(request);
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      response.end(Buffer.from(await answer.arrayBuffer()));
    };
    handle().catch((error: unknown) => response.writeHead(500).end(String(error)));
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const env = { ...cleanEnv(folder), TINKER_BASE_URL: url };
  const direct = { baseURL: backend.baseURL, fetch: backend.fetch, apiKey: backend.apiKey };
  const rest = new RestClient(direct);
  const server: CliServer = {
    url,
    folder,
    env,
    rest,
    requests: [],
    intercept: () => false,
    answer: async (request) => {
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece as Buffer);
      return backend.fetch(`${url}${request.url}`, {
        method: request.method!,
        headers: request.headers as Record<string, string>,
        ...(pieces.length > 0 && { body: Buffer.concat(pieces) }),
        redirect: "manual",
      });
    },
    cli: async (args, more = {}) => {
      const release = await processes.acquire();
      return runWarm(args, { cwd: folder, env: { ...env, ...more } }).finally(release);
    },
    json: async (args) => {
      const { code, stdout, stderr } = await server.cli([...args, "--json"]);
      if (code !== 0) throw new Error(`ended with ${code}: ${stderr}`);
      return JSON.parse(stdout);
    },
    train: async ({ metadata, ...serviceOptions } = {}) => {
      const service = new ServiceClient({ ...direct, ...serviceOptions });
      services.push(service);
      return service.createLoraTrainingClient({ baseModel, rank: 4, userMetadata: metadata });
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([rest, ...services].map((client) => client.close()));
      await new Promise<void>((resolve) => {
        http.close(() => resolve());
        http.closeAllConnections();
      });
      await backend.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return server;
}

/** CSV, read back: one object for each row. */
export function readCsv(text: string): Record<string, string>[] {
  const rows: string[][] = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\n]*))(,|\n|$)/g)) {
    if (end === "" && quoted === undefined && plain === "") break;
    rows.at(-1)!.push(quoted?.replaceAll('""', '"') ?? plain!);
    if (end === "\n") rows.push([]);
  }
  const [header = [], ...body] = rows.filter((row) => row.length > 0);
  return body.map((row) => Object.fromEntries(header.map((name, index) => [name, row[index]!])));
}
