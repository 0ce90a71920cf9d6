import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { LocalBackend } from "../../src/local/index.js";
import { Datum, encodeForwardBackwardRequest } from "../../src/wire/index.js";
import { fakeModel } from "./fake-engine.js";
import { type Answer, type Json, passBody, type RawClient, sampleBody, startFake } from "./raw-client.js";
import { zstdRaw } from "./zstd-raw.js";

let backend: LocalBackend;
let client: RawClient;
let modelId: string;
let samplerId: string;
let nextSeqId = 1;

beforeAll(async () => {
  ({ backend, client } = await startFake({
    limits: {
      bodyBytes: 200_000,
      decompressedBytes: 300_000,
      jsonBytes: 50_000,
      jsonParts: 3000,
      jsonValues: 8000,
      tokensPerRequest: 500,
      datumsPerRequest: 50,
      targetsPerToken: 4,
    },
  }));
  const opened = await client.openModel();
  modelId = opened.modelId;
  samplerId = String(
    (
      await client.ok("/create_sampling_session", {
        session_id: opened.sessionId,
        sampling_session_seq_id: 0,
        base_model: fakeModel.name,
      })
    )["sampling_session_id"],
  );
});
afterAll(() => backend.close());

async function sendBytes(
  path: string,
  bytes: Uint8Array | string,
  headers: Record<string, string>,
): Promise<Answer> {
  const response = await client.send("POST", `/api/v1${path}`, { headers, body: bytes as BodyInit });
  return { status: response.status, headers: response.headers, body: (await response.json()) as Json };
}

const PROTO = { "content-type": "application/x-protobuf" };

function protoPass(first: number, forwardOnly = false): Uint8Array {
  const datum = new Datum({
    modelInput: [first, 2, 3],
    lossFnInputs: { targetTokens: [2, 3, 4], weights: [1, 1, 1] },
  });
  return encodeForwardBackwardRequest({
    modelId,
    seqId: nextSeqId++,
    data: [datum],
    lossFn: "cross_entropy",
    forwardOnly,
  });
}

describe("a body", () => {
  it("of JSON that is nested too deep, or too large to be parsed, is refused before it is parsed", async () => {
    const nested = (depth: number) => `{"events":[${"[".repeat(depth)}${"]".repeat(depth)}]}`;
    const send = (body: string) => sendBytes("/telemetry", body, { "content-type": "application/json" });
    expect((await send(nested(98))).status).toBe(200);
    expect(await send(nested(99))).toMatchObject({
      status: 422,
      body: { detail: [{ loc: ["body", "body"], msg: "body is nested more than 100 levels deep" }] },
    });
    // Brackets inside texts are no nesting.
    expect((await send(JSON.stringify({ events: ['\\"[['.repeat(200)] }))).status).toBe(200);
    expect((await send(`{"events":[${" ".repeat(60_000)}]}`)).status).toBe(413);
  });

  it("of JSON with more parts than the parser takes in its stride is refused before it is parsed", async () => {
    const send = (body: string) => sendBytes("/telemetry", body, { "content-type": "application/json" });
    const filled = (count: number, value: string) => `{"events":[${Array(count).fill(value).join()}]}`;
    expect((await send(filled(2990, "[]"))).status).toBe(200);
    expect(await send(filled(3000, "{}"))).toMatchObject({
      status: 413,
      body: {
        detail: "The JSON body has more than 3000 objects, lists, texts and keys; send smaller requests.",
      },
    });
    expect((await send(filled(3000, '","'))).status).toBe(413);
    expect(await send(filled(8001, "1"))).toMatchObject({
      status: 413,
      body: { detail: "The JSON body has more than 8000 values; send smaller requests." },
    });
    // Commas and brackets of texts are letters.
    expect((await send(JSON.stringify({ events: [",{".repeat(9000)] }))).status).toBe(200);
  });

  it("of protobuf with more parts than belong to a batch is refused, in whichever encoding", async () => {
    const many = Buffer.alloc(4000, Uint8Array.of(0x1a, 0));
    const detail = [
      { loc: ["body", "data"], msg: "data: one request holds at most 50; send several requests" },
    ];
    const encodings = { identity: many, gzip: gzipSync(many), zstd: zstdRaw(many) };
    for (const [encoding, bytes] of Object.entries(encodings)) {
      const answer = await sendBytes("/forward_backward", bytes, { ...PROTO, "content-encoding": encoding });
      expect(answer).toMatchObject({ status: 422, body: { detail } });
    }
  });

  it("that names what does not exist gets an answer much shorter than itself", async () => {
    const answer = await client.post("/forward_backward", passBody("x".repeat(40_000), 1, 2));
    expect(answer.status).toBe(404);
    expect(JSON.stringify(answer.body).length).toBeLessThan(20_000);
  });

  it("may be protobuf, plain or in zstd or gzip, and the same request then is the same request", async () => {
    const bytes = protoPass(1);
    const plain = await sendBytes("/forward_backward", bytes, PROTO);
    expect(plain.status).toBe(200);
    const zstd = await sendBytes("/forward_backward", zstdRaw(bytes), {
      ...PROTO,
      "content-encoding": "zstd",
    });
    expect(zstd.body).toEqual(plain.body);
    const gzip = await sendBytes("/forward_backward", gzipSync(bytes), {
      ...PROTO,
      "content-encoding": "gzip",
    });
    expect(gzip.body).toEqual(plain.body);
    const asJson = passBody(modelId, nextSeqId - 1, 1);
    expect(await client.ok("/forward_backward", asJson)).toEqual(plain.body);
    expect((await client.passResult(plain.body)).lossFnOutputs).toHaveLength(1);
  });

  it("may be JSON in zstd as a real compressor writes it", async () => {
    // Written by python-zstandard: {"session_id":"nope"} with padding.
    const compressed = Buffer.from("KLUv/SBf5QAAsHsic2Vzc2lvbl9pZCI6Im5vcGUifSABAAwFTQ==", "base64");
    const answer = await sendBytes("/session_heartbeat", compressed, {
      "content-type": "application/json",
      "content-encoding": "zstd",
    });
    expect([answer.status, answer.body["detail"]]).toEqual([404, "There is no session nope."]);
  });

  it("may be the forward-only JSON of older clients", async () => {
    const { forward_backward_input: forward_input, ...rest } = passBody(modelId, nextSeqId++, 3);
    const accepted = await client.ok("/forward", { ...rest, forward_input });
    expect((await client.passResult(accepted)).metrics["tokens:sum"]).toBe(3);
  });

  it("above the size limit is a 413, also when it does not say its size", async () => {
    const large = JSON.stringify({ events: ["x".repeat(250_000)] });
    const declared = await sendBytes("/telemetry", large, { "content-type": "application/json" });
    expect(declared.status).toBe(413);
    expect(declared.body["detail"]).toContain("200000 bytes");
    const stream = new Blob([large]).stream();
    const response = await backend.fetch(`${backend.baseURL}/api/v1/telemetry`, {
      method: "POST",
      body: stream,
      duplex: "half",
      headers: { "content-type": "application/json" },
    } as RequestInit);
    expect(response.status).toBe(413);
  });

  it.each([
    ["declares its size", "zstdBombWithSize"],
    ["hides its size", "zstdRealBombWithoutSize"],
    ["is made of runs", "zstdBombWithoutSize"],
    ["asks for a window of gigabytes", "zstdWindowBomb"],
  ])("that is a zstd bomb which %s is a 413", async (_, name) => {
    const bombs: Record<string, Uint8Array> = {
      // 50 MB of zeros, as python-zstandard begins them; the header is enough.
      zstdBombWithSize: Buffer.from("KLUv/YBogPD6AkwAAAg=", "base64"),
      // 3 MB of zeros without their size, as python-zstandard writes them.
      zstdRealBombWithoutSize: Buffer.from(
        "KLUv/QBgTAAACAABAPz/ORACAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAzYOAA==",
        "base64",
      ),
      // Run-length blocks of 128 KiB each, and no content size.
      zstdBombWithoutSize: rleFrame(40),
      zstdWindowBomb: Uint8Array.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00]),
    };
    const answer = await sendBytes("/telemetry", bombs[name]!, {
      "content-type": "application/json",
      "content-encoding": "zstd",
    });
    expect([answer.status, answer.body["detail"]]).toEqual([413, expect.stringContaining("300000 bytes")]);
  });

  it("that is a gzip bomb is a 413", async () => {
    const answer = await sendBytes("/telemetry", gzipSync(Buffer.alloc(400_000)), {
      "content-type": "application/json",
      "content-encoding": "gzip",
    });
    expect(answer.status).toBe(413);
  });

  it.each([
    ["broken zstd", "zstd", 400],
    ["an unknown encoding", "br", 415],
  ])("in %s is refused", async (_, encoding, status) => {
    const answer = await sendBytes("/telemetry", "not that", {
      "content-type": "application/json",
      "content-encoding": encoding,
    });
    expect(answer.status).toBe(status);
  });

  it("that is not JSON, or JSON of the wrong kind, is refused with the reason", async () => {
    const json = { "content-type": "application/json" };
    expect((await sendBytes("/create_session", "{", json)).status).toBe(422);
    expect((await sendBytes("/create_session", "[]", json)).status).toBe(422);
    expect((await sendBytes("/create_session", "x", { "content-type": "text/csv" })).status).toBe(415);
    expect((await sendBytes("/forward_backward", "\xff\xff\xff", PROTO)).status).toBe(422);
  });
});

function rleFrame(blocks: number): Uint8Array {
  const bytes = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
  for (let index = 0; index < blocks; index += 1) {
    const header = (131_072 << 3) | (1 << 1) | (index === blocks - 1 ? 1 : 0);
    bytes.push(header & 255, (header >> 8) & 255, header >> 16, 0x20);
  }
  return Uint8Array.from(bytes);
}

describe("a 422", () => {
  const locOf = (answer: Answer) => (answer.body["detail"] as { loc: unknown[]; msg: string }[])[0];

  it("names the missing field", async () => {
    const answer = await client.post("/create_model", { session_id: "x", base_model: "y" });
    expect(answer.status).toBe(422);
    expect(locOf(answer)).toMatchObject({ loc: ["body", "model_seq_id"] });
  });

  it.each<[string, Json, unknown[], RegExp]>([
    [
      "a token the model does not have",
      { data: [one({ tokens: [100] })] },
      ["body", "data", 0, "model_input"],
      /token 100 at position 0.*0 to 99/,
    ],
    [
      "more tokens than the model reads",
      { data: [one({ tokens: new Array(65).fill(1) })] },
      ["body", "data", 0, "model_input"],
      /65 tokens.*at most 64/,
    ],
    ["no tokens", { data: [one({ tokens: [] })] }, ["body", "data", 0, "model_input"], /no tokens/],
    ["no data", { data: [] }, ["body", "data"], /at least one/],
    ["too many datums", { data: new Array(51).fill(one({})) }, ["body", "data"], /51 datums.*at most 50/],
    ["a loss that does not exist", { loss_fn: "kl" }, ["body", "loss_fn"], /must be one of cross_entropy/],
    [
      "a custom loss without its id",
      { loss_fn: "custom" },
      ["body", "loss_fn_config", "loss_id"],
      /create_custom_loss/,
    ],
    [
      "a setting the loss does not have",
      { loss_fn: "dro", loss_fn_config: { clip_low_threshold: 1 } },
      ["body", "loss_fn_config", "clip_low_threshold"],
      /unknown field loss_fn_config.clip_low_threshold; known fields are beta/,
    ],
    [
      "settings that are no object",
      { loss_fn: "dro", loss_fn_config: "beta" },
      ["body", "loss_fn_config"],
      /loss_fn_config/,
    ],
    [
      "missing targets",
      { data: [one({ inputs: { target_tokens: undefined } })] },
      ["body", "data", 0, "loss_fn_inputs", "target_tokens"],
      /is missing/,
    ],
    [
      "an input the loss does not know",
      { data: [one({ inputs: { mask: floats([1, 1, 1]) } })] },
      ["body", "data", 0, "loss_fn_inputs", "mask"],
      /unknown field data\[0\].loss_fn_inputs.mask; known fields are target_tokens, weights/,
    ],
    [
      "an input of another loss",
      { data: [one({ inputs: { advantages: floats([1, 1, 1]) } })] },
      ["body", "data", 0, "loss_fn_inputs", "advantages"],
      /unknown field/,
    ],
    [
      "missing advantages",
      { loss_fn: "ppo", data: [one({ inputs: { logprobs: floats([1, 1, 1]) } })] },
      ["body", "data", 0, "loss_fn_inputs", "advantages"],
      /is missing/,
    ],
    [
      "weights of another length",
      { data: [one({ inputs: { weights: floats([1]) } })] },
      ["body", "data", 0, "loss_fn_inputs", "weights"],
      /3 rows/,
    ],
    [
      "a target out of range",
      { data: [one({ inputs: { target_tokens: ints([1, 2, 100]) } })] },
      ["body", "data", 0, "loss_fn_inputs", "target_tokens"],
      /token 100 at position 2/,
    ],
    [
      "targets of a type that is no token",
      { data: [one({ inputs: { target_tokens: floats([1, 2, 3]) } })] },
      ["body", "data", 0, "loss_fn_inputs", "target_tokens"],
      /must be int64/,
    ],
    [
      "a sparse tensor that would fill the memory",
      {
        data: [
          one({
            inputs: {
              target_tokens: {
                data: [1],
                dtype: "int64",
                shape: [3, 1_000_000_000],
                sparse_crow_indices: [0, 1, 1, 1],
                sparse_col_indices: [0],
              },
            },
          }),
        ],
      },
      ["body", "data", 0, "loss_fn_inputs", "target_tokens"],
      /at most 4/,
    ],
    [
      "an image",
      { data: [one({ chunk: { type: "image", format: "png", data: "AAAA", expected_tokens: 3 } })] },
      ["body", "data", 0, "model_input", "chunks", 0],
      /image chunk.*text only/,
    ],
    [
      "audio",
      { data: [one({ chunk: { type: "dmel", dmel: "AQED" } })] },
      ["body", "data", 0, "model_input", "chunks", 0],
      /audio chunk.*text only/,
    ],
  ])("for %s names the field", async (_, fields, loc, message) => {
    const answer = await client.post("/forward_backward", passBody(modelId, nextSeqId++, 1, fields));
    expect([answer.status, locOf(answer)]).toMatchObject([422, { loc, msg: expect.stringMatching(message) }]);
  });

  it.each([0, -1, 1.5, "3", [1], 2 ** 31])("for seq_id %j names the field", async (seqId) => {
    const body = { ...passBody(modelId, undefined, 1), seq_id: seqId };
    const answer = await client.post("/forward_backward", body);
    expect([answer.status, locOf(answer)]).toMatchObject([422, { loc: ["body", "seq_id"] }]);
  });

  it("comes for values that are not finite, which only protobuf can carry", async () => {
    const bytes = protoPass(1);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const one32 = [0, 0, 0x80, 0x3f];
    const at = bytes.findIndex((_, index) => one32.every((byte, offset) => bytes[index + offset] === byte));
    view.setFloat32(at, Number.POSITIVE_INFINITY, true);
    const answer = await sendBytes("/forward_backward", bytes, PROTO);
    expect([answer.status, JSON.stringify(answer.body)]).toEqual([422, expect.stringMatching(/weights/)]);
  });

  it("is a 413 when a batch has too many tokens in all", async () => {
    const data = new Array(9).fill(one({ tokens: new Array(60).fill(1) }));
    expect((await client.post("/forward_backward", passBody(modelId, nextSeqId++, 1, { data }))).status).toBe(
      413,
    );
  });

  it.each<[string, Json, unknown[], RegExp]>([
    [
      "no room to sample",
      { sampling_params: { max_tokens: 64 } },
      ["body", "sampling_params", "max_tokens"],
      /leave room for 63/,
    ],
    [
      "a negative temperature",
      { sampling_params: { max_tokens: 1, temperature: -1 } },
      ["body", "sampling_params", "temperature"],
      /temperature/,
    ],
    ["no samples", { num_samples: 0 }, ["body", "num_samples"], /num_samples/],
    [
      "a top_p of nothing",
      { sampling_params: { max_tokens: 1, top_p: 0 } },
      ["body", "sampling_params", "top_p"],
      /top_p/,
    ],
    [
      "a token the model does not have",
      { prompt: { chunks: [{ type: "encoded_text", tokens: [1, 100] }] } },
      ["body", "prompt"],
      /token 100 at position 1/,
    ],
    ["too many samples", { num_samples: 5000 }, ["body", "num_samples"], /at most 1024/],
    ["too long a top-k", { topk_prompt_logprobs: 999 }, ["body", "topk_prompt_logprobs"], /at most 256/],
    [
      "a stop text that is empty",
      { sampling_params: { max_tokens: 1, stop: ["a", ""] } },
      ["body", "sampling_params", "stop"],
      /a text that is not empty/,
    ],
    [
      "targets of another shape",
      { target_prompt_logprobs: { data: [1, 2], dtype: "int64", shape: [2, 1] } },
      ["body", "target_prompt_logprobs"],
      /\[1, K\]/,
    ],
    [
      "last_n without prompt logprobs",
      { prompt_logprobs_last_n: 1 },
      ["body", "prompt_logprobs_last_n"],
      /needs prompt logprobs/,
    ],
    [
      "more likeliest tokens than fit in memory",
      { num_samples: 1024, topk_sample_logprobs: 100, sampling_params: { max_tokens: 60 } },
      ["body", "topk_sample_logprobs"],
      /asks for 6144000 likeliest tokens over all positions, and one request may have \d+; ask for fewer/,
    ],
    ["a missing prompt", { prompt: undefined }, ["body", "prompt"], /is missing/],
    ["no prompt", { prompt: null }, ["body", "prompt"], /must be an object, got null/],
    [
      "an image to sample from",
      {
        prompt: {
          chunks: [{ type: "image_asset_pointer", format: "png", location: "x", expected_tokens: 1 }],
        },
      },
      ["body", "prompt", "chunks", 0],
      /image chunk/,
    ],
  ])("for a sample with %s names the field", async (_, fields, loc, message) => {
    const answer = await client.post("/asample", sampleBody(samplerId, 0, fields));
    expect([answer.status, locOf(answer)]).toMatchObject([422, { loc, msg: expect.stringMatching(message) }]);
  });

  it.each<[string, string, Json, unknown[]]>([
    [
      "an optimizer the server does not have",
      "/optim_step",
      { optimizer_params: { type: "dimuon", learning_rate: 1 } },
      ["body", "optimizer_params", "type"],
    ],
    [
      "a negative learning rate",
      "/optim_step",
      { adam_params: { learning_rate: -1 } },
      ["body", "adam_params", "learning_rate"],
    ],
    [
      "a misspelt setting",
      "/optim_step",
      { adam_params: { learnin_rate: 1 } },
      ["body", "adam_params", "learnin_rate"],
    ],
    ["a name that leaves the folder", "/save_weights", { path: "../../etc" }, ["body", "path"]],
    ["a name that hides", "/save_weights", { path: ".hidden" }, ["body", "path"]],
    ["a name that is a device", "/save_weights", { path: "con.1" }, ["body", "path"]],
    ["a ttl of nothing", "/save_weights", { path: "a", ttl_seconds: 0 }, ["body", "ttl_seconds"]],
    [
      "encryption",
      "/save_weights_external",
      { path: "a", age_encryption_recipients: ["age1x"] },
      ["body", "age_encryption_recipients"],
    ],
    [
      "two destinations",
      "/save_weights_for_sampler",
      { path: "a", sampling_session_seq_id: 1 },
      ["body", "sampling_session_seq_id"],
    ],
    ["a path that is none", "/load_weights", { path: "/etc/passwd", optimizer: false }, ["body", "path"]],
  ])("for %s names the field", async (_, path, fields, loc) => {
    const answer = await client.post(path, { model_id: modelId, seq_id: nextSeqId++, ...fields });
    expect([answer.status, locOf(answer)]).toMatchObject([422, { loc }]);
  });
});

function ints(data: number[]): Json {
  return { data, dtype: "int64", shape: [data.length] };
}

function floats(data: number[]): Json {
  return { data, dtype: "float32", shape: [data.length] };
}

function one(fields: { tokens?: number[]; chunk?: Json; inputs?: Record<string, Json | undefined> }): Json {
  return {
    model_input: { chunks: [fields.chunk ?? { type: "encoded_text", tokens: fields.tokens ?? [1, 2, 3] }] },
    loss_fn_inputs: {
      target_tokens: ints((fields.tokens ?? [1, 2, 3]).map(() => 1)),
      weights: floats((fields.tokens ?? [1, 2, 3]).map(() => 1)),
      ...fields.inputs,
    },
  };
}
