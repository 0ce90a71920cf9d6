import { startEngine } from "../../src/local/engine/start-engine.node.js";
import {
  defaultModel,
  type LocalBackend,
  type LocalBackendOptions,
  startLocalBackend,
} from "../../src/local/index.js";
import { type Json, silent } from "./raw-client.js";
import { ScriptedEngine } from "./scripted-engine.js";

export type Sent = { readonly status: number; readonly headers: Headers; readonly body: Json };

/** Speaks to a backend's OpenAI-compatible door by hand. */
export function doorOf(backend: Pick<LocalBackend, "fetch" | "baseURL">, base = "/v1") {
  const fetchPath = (path: string, body?: unknown, init: RequestInit = {}) =>
    backend.fetch(`${backend.baseURL}${base}${path}`, {
      method: body === undefined ? "GET" : "POST",
      ...init,
      headers: { "content-type": "application/json", ...(init.headers as Record<string, string>) },
      ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
  return {
    fetchPath,
    async send(path: string, body?: unknown, init?: RequestInit): Promise<Sent> {
      const response = await fetchPath(path, body, init);
      return { status: response.status, headers: response.headers, body: (await response.json()) as Json };
    },
    /** The events of a stream; the last is "[DONE]" where it ended well. */
    async stream(path: string, body: Json): Promise<(Json | "[DONE]")[]> {
      const response = await fetchPath(path, { ...body, stream: true });
      if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
      return eventsOf(await response.text());
    },
  };
}

export function eventsOf(text: string): (Json | "[DONE]")[] {
  return text
    .trim()
    .split("\n\n")
    .map((line) => line.replace(/^data: /, ""))
    .map((data) => (data === "[DONE]" ? data : (JSON.parse(data) as Json)));
}

export interface Chunk {
  readonly choices: readonly {
    readonly index: number;
    readonly delta: Json;
    readonly text: string;
    readonly logprobs: Json | null;
    readonly finish_reason: string | null;
  }[];
  readonly usage?: Json | null;
}

export const chunksOf = (events: readonly (Json | "[DONE]")[]): Chunk[] =>
  events.filter((event) => event !== "[DONE]") as unknown as Chunk[];

/** A backend whose model says what a test tells it. */
export async function scripted(name?: string, options: LocalBackendOptions = {}) {
  const engine = new ScriptedEngine(name);
  const backend = await startLocalBackend({ engine, listen: false, logger: silent, ...options });
  return { engine, backend, door: doorOf(backend) };
}

/** A backend that really samples from `tinkerts/nano`. */
export async function nano(options: LocalBackendOptions = {}) {
  const engine = await startEngine({ models: [defaultModel], threads: 1, inThread: true });
  const backend = await startLocalBackend({ engine, listen: false, logger: silent, ...options });
  return { backend, door: doorOf(backend) };
}
