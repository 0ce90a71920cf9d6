import { type LocalBackend, type LocalBackendOptions, startLocalBackend } from "../../src/local/index.js";
import { decodeForwardBackwardOutput, decodeSampleResponse } from "../../src/wire/protobuf.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";

export type Json = Record<string, unknown>;

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Json;
}

/** A backend over the fake engine, without a socket. */
export async function startFake(
  options: LocalBackendOptions = {},
): Promise<{ backend: LocalBackend; engine: FakeEngine; client: RawClient }> {
  const engine = new FakeEngine();
  const backend = await startLocalBackend({ engine, listen: false, logger: silent, ...options });
  return { backend, engine, client: new RawClient(backend) };
}

export const silent = { error: () => {}, warn: () => {} };

/** Speaks the wire protocol by hand, so that tests see exactly what the server answers. */
export class RawClient {
  readonly backend: Pick<LocalBackend, "fetch" | "baseURL">;
  readonly headers: Record<string, string>;

  constructor(backend: Pick<LocalBackend, "fetch" | "baseURL">, headers: Record<string, string> = {}) {
    this.backend = backend;
    this.headers = headers;
  }

  /** The same as the official Python package, which some answers are made for. */
  asPython(requestType = "ForwardBackward"): RawClient {
    return new RawClient(this.backend, {
      ...this.headers,
      "user-agent": "AsyncTinker/Python 0.36.0",
      "x-tinker-request-type": requestType,
    });
  }

  withKey(key: string): RawClient {
    return new RawClient(this.backend, { ...this.headers, "x-api-key": key });
  }

  async send(method: string, path: string, init: RequestInit = {}): Promise<Response> {
    const url = path.startsWith("http") ? path : `${this.backend.baseURL}${path}`;
    const headers = { ...this.headers, ...(init.headers as Record<string, string> | undefined) };
    return this.backend.fetch(url, { redirect: "manual", ...init, method, headers });
  }

  async call(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer> {
    const response = await this.send(method, `/api/v1${path}`, {
      headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      body: text === "" ? {} : (JSON.parse(text) as Json),
    };
  }

  get = (path: string, headers?: Record<string, string>): Promise<Answer> =>
    this.call("GET", path, undefined, headers);
  post = (path: string, body: unknown = {}, headers?: Record<string, string>): Promise<Answer> =>
    this.call("POST", path, body, headers);

  async ok(path: string, body: unknown = {}): Promise<Json> {
    const answer = await this.post(path, body);
    if (answer.status !== 200)
      throw new Error(`POST ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  async openSession(fields: Json = {}): Promise<string> {
    const body = await this.ok("/create_session", {
      tags: [],
      user_metadata: null,
      sdk_version: "0.36.0",
      ...fields,
    });
    return String(body["session_id"]);
  }

  /** One poll; the answer's body. */
  async poll(requestId: unknown, fields: Json = {}): Promise<Json> {
    return this.ok("/retrieve_future", { request_id: requestId, allow_metadata_only: true, ...fields });
  }

  async result(accepted: Json | Promise<Json>): Promise<Json> {
    return this.poll((await accepted)["request_id"], { allow_metadata_only: false });
  }

  async proto(requestId: unknown): Promise<Uint8Array> {
    const response = await this.send("POST", "/api/v1/retrieve_future", {
      headers: { "content-type": "application/json", accept: "application/x-protobuf" },
      body: JSON.stringify({ request_id: requestId }),
    });
    if (response.headers.get("content-type") !== "application/x-protobuf") {
      throw new Error(`${response.status} ${await response.text()}`);
    }
    return new Uint8Array(await response.arrayBuffer());
  }

  async sampleResult(accepted: Json) {
    return decodeSampleResponse(await this.proto(accepted["request_id"]));
  }

  async passResult(accepted: Json) {
    return decodeForwardBackwardOutput(await this.proto(accepted["request_id"]));
  }

  /** A model that is ready; seeds decide the fake engine's starting weight. */
  async createModel(sessionId: string, modelSeqId = 0, seed = 0): Promise<string> {
    const accepted = await this.ok("/create_model", {
      session_id: sessionId,
      model_seq_id: modelSeqId,
      base_model: fakeModel.name,
      lora_config: { rank: 4, seed },
    });
    return String((await this.result(accepted))["model_id"]);
  }

  async openModel(): Promise<{ sessionId: string; modelId: string }> {
    const sessionId = await this.openSession();
    return { sessionId, modelId: await this.createModel(sessionId) };
  }
}

/** A JSON forward_backward body; `first` is the first token, which the fake engine logs. */
export function passBody(modelId: string, seqId: number | undefined, first: number, fields: Json = {}): Json {
  return {
    model_id: modelId,
    ...(seqId === undefined ? {} : { seq_id: seqId }),
    forward_backward_input: {
      loss_fn: "cross_entropy",
      data: [
        {
          model_input: { chunks: [{ type: "encoded_text", tokens: [first, 2, 3] }] },
          loss_fn_inputs: {
            target_tokens: { data: [2, 3, 4], dtype: "int64", shape: [3] },
            weights: { data: [1, 1, 1], dtype: "float32", shape: [3] },
          },
        },
      ],
      ...fields,
    },
  };
}

/** A pass over one token of this weight. */
export function weightedPass(modelId: string, seqId: number, weight: number): Json {
  const datum = {
    model_input: { chunks: [{ type: "encoded_text", tokens: [1] }] },
    loss_fn_inputs: {
      target_tokens: { data: [1], dtype: "int64", shape: [1] },
      weights: { data: [weight], dtype: "float32", shape: [1] },
    },
  };
  return passBody(modelId, seqId, 1, { data: [datum] });
}

export function stepBody(modelId: string, seqId: number, learningRate = 0.1): Json {
  return { model_id: modelId, seq_id: seqId, adam_params: { learning_rate: learningRate } };
}

export function sampleBody(samplerId: string, seqId: number, fields: Json = {}): Json {
  return {
    sampling_session_id: samplerId,
    seq_id: seqId,
    num_samples: 1,
    prompt: { chunks: [{ type: "encoded_text", tokens: [5, 6] }] },
    sampling_params: { max_tokens: 3 },
    type: "sample",
    ...fields,
  };
}
