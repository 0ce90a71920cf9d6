import { APIConnectionError, APIError } from "../../src/errors.js";
import type { APIRequest, Clock, HttpClient, Logger } from "../../src/transport/index.js";
import { FakeClock } from "../support/fake-clock.js";

export interface FakeAnswer {
  status?: number;
  json?: unknown;
  /** No answer at all: a connection error. */
  drop?: boolean;
}

export type Answer = (request: APIRequest) => FakeAnswer | Promise<FakeAnswer>;

export interface LogLine {
  level: keyof Logger;
  message: string;
}

/** An HttpClient without HTTP: one attempt per exchange, answered by a function, on a fake clock. */
export function fakeHttp(answer: Answer = () => ({}), clock: Clock = new FakeClock()) {
  const requests: Array<APIRequest & { atMs: number }> = [];
  const logs: LogLine[] = [];
  const line = (level: keyof Logger) => (message: string) => void logs.push({ level, message });
  const logger: Logger = {
    error: line("error"),
    warn: line("warn"),
    info: line("info"),
    debug: line("debug"),
  };
  const exchange = async (request: APIRequest) => {
    requests.push({ ...request, atMs: clock.now() });
    const { status = 200, json = {}, drop = false } = await answer(request);
    if (request.signal?.aborted) throw new APIConnectionError("aborted");
    if (drop) throw new APIConnectionError("connection refused");
    if (status >= 400) throw APIError.from(status, new Headers(), json, request);
    return {
      status,
      headers: new Headers(),
      contentType: "application/json",
      bytes: new Uint8Array(),
      json: () => json,
    };
  };
  const http = { exchange, clock, logger, hooks: [], random: () => 0.5, baseURL: "http://fake" };
  return { http: http as unknown as HttpClient, requests, logs };
}
