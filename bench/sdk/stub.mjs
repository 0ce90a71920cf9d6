// A Tinker server that does nothing: accepts every request at once and answers every poll with a ready result.
// Run as a process of its own, so that only the clients' work is measured. Prints its address.
import { createServer } from "node:http";
import { create, toBinary } from "@bufbuild/protobuf";
import {
  DType,
  ForwardBackwardOutputSchema,
  SampleResponseSchema,
  StopReason,
} from "../../dist/wire/gen/tinker_public_pb.js";
import { resultLogprobs, sampledTokens, tokenAt } from "./workload.mjs";

const bytesOf = (values) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

/** The logprobs of a batch: `datums` rows of `length`. */
function passResult(datums, length) {
  const offsets = BigInt64Array.from({ length: datums + 1 }, (_, index) => BigInt(index * length * 4));
  return Buffer.from(
    toBinary(
      ForwardBackwardOutputSchema,
      create(ForwardBackwardOutputSchema, {
        lossFnOutputType: "CrossEntropyLossReturn",
        lossFnOutputs: [
          {
            typeTag: "CrossEntropyLossReturn",
            numDatums: BigInt(datums),
            fields: {
              logprobs: {
                data: bytesOf(new Float32Array(datums * length).fill(-1.5)),
                offsets: bytesOf(offsets),
                dtype: DType.DTYPE_FLOAT32,
              },
            },
          },
        ],
        metrics: { "loss:sum": 1.5 },
      }),
    ),
  );
}

const sample = Buffer.from(
  toBinary(
    SampleResponseSchema,
    create(SampleResponseSchema, {
      sequences: [
        {
          stopReason: StopReason.LENGTH,
          tokens: bytesOf(Int32Array.from({ length: sampledTokens }, (_, index) => tokenAt(index))),
          logprobs: bytesOf(new Float32Array(sampledTokens).fill(-0.5)),
        },
      ],
    }),
  ),
);
const results = {
  pass: passResult(1, 1),
  largePass: passResult(resultLogprobs.datums, resultLogprobs.length),
  sample,
};

let counter = 0;
function nextId() {
  counter += 1;
  return counter;
}
const jsonRoutes = {
  "/api/v1/client/config": () => ({}),
  "/api/v1/client/dynamic_config": () => ({ refresh_interval_sec: 300 }),
  "/api/v1/create_session": () => ({ type: "create_session", session_id: `session-${nextId()}` }),
  "/api/v1/session_heartbeat": () => ({ type: "session_heartbeat" }),
  "/api/v1/telemetry": () => ({ status: "accepted" }),
  "/api/v1/create_sampling_session": () => ({
    type: "create_sampling_session",
    sampling_session_id: `sampler-${nextId()}`,
  }),
  "/api/v1/create_model": () => ({ request_id: "model", model_id: "model" }),
  "/api/v1/get_info": () => ({
    type: "get_info",
    model_id: "session-1:train:0",
    model_data: { model_name: "stub/model", tokenizer_id: "stub/model" },
  }),
  // Batches of the workload with a large result are small themselves.
  "/api/v1/forward_backward": (bytes) => ({
    request_id: `${bytes < 300_000 ? "largePass" : "pass"}:${nextId()}`,
    model_id: "session-1:train:0",
  }),
  "/api/v1/asample": () => ({
    request_id: `sample:${nextId()}`,
    sample_sequence_ids: [`sequence-${nextId()}`],
  }),
};

const server = createServer((request, response) => {
  const path = request.url.split("?")[0];
  if (path === "/api/v1/retrieve_future") {
    let body = "";
    request.setEncoding("latin1").on("data", (text) => {
      body += text;
    });
    request.on("end", () => {
      const requestId = /"request_id":\s*"([^"]+)"/.exec(body)?.[1] ?? "";
      if (requestId === "model") {
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ type: "create_model", model_id: "session-1:train:0" }));
        return;
      }
      const result = results[requestId.split(":")[0]];
      response.writeHead(200, {
        "content-type": "application/x-protobuf",
        "content-length": result.length,
      });
      response.end(result);
    });
    return;
  }
  let bytes = 0;
  request.on("data", (chunk) => {
    bytes += chunk.length;
  });
  request.on("end", () => {
    const answer = jsonRoutes[path]?.(bytes);
    const text = JSON.stringify(answer ?? { detail: "Not Found" });
    response.writeHead(answer === undefined ? 404 : 200, {
      "content-type": "application/json",
      "content-length": text.length,
    });
    response.end(text);
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
