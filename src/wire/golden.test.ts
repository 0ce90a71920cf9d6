import { readFileSync } from "node:fs";
import { create, toBinary } from "@bufbuild/protobuf";
import type { DescriptorProto } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { encodeRequest } from "./endpoints/endpoint.js";
import { endpoints } from "./endpoints/index.js";
import { adamParams, loraConfig } from "./endpoints/training.js";
import { ForwardBackwardRequestSchema, file_tinker_public } from "./gen/tinker_public_pb.js";
import { chunkLength } from "./sampling/model-input.js";
import { decodeSampleResponse, encodeSampleResponse } from "./sampling/sample-response-proto.js";
import { TensorData } from "./tensors/tensor-data.js";
import { Datum } from "./training/datum.js";
import {
  decodeForwardBackwardOutput,
  encodeForwardBackwardOutput,
} from "./training/forward-backward-output-proto.js";
import { decodeForwardBackwardRequest } from "./training/forward-backward-request-proto.js";
import { encodeForwardBackwardRequest } from "./training/forward-backward-request-writer.js";
import type { ForwardBackwardRequest } from "./training/training-types.js";

// The fixtures were written by the official Python package: see scripts/golden/wire.py.
const readBytes = (name: string) =>
  new Uint8Array(readFileSync(new URL(`./fixtures/${name}`, import.meta.url)));
const readJson = (name: string) =>
  JSON.parse(readFileSync(new URL(`./fixtures/${name}`, import.meta.url), "utf8"));

/** Tensors and typed arrays as the fixtures write them. */
function plain(value: unknown): unknown {
  if (value instanceof TensorData) {
    return {
      data: Array.from(value.data, (item) => (Number.isNaN(item) ? null : item)),
      dtype: value.dtype,
      shape: [...value.shape],
      sparseCrowIndices: value.sparseCrowIndices ? Array.from(value.sparseCrowIndices) : null,
      sparseColIndices: value.sparseColIndices ? Array.from(value.sparseColIndices) : null,
    };
  }
  if (ArrayBuffer.isView(value)) return Array.from(value as Float32Array);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
}

const request: ForwardBackwardRequest = {
  modelId: "session:train:0",
  seqId: 300,
  lossFn: "ppo",
  lossFnConfig: { clipHighThreshold: 1.2, clipLowThreshold: 0, mode: "tokén" },
  forwardOnly: true,
  data: [
    new Datum({
      modelInput: [1, 2, 151643],
      lossFnInputs: { targetTokens: [2, 151643, 5_000_000_000], weights: [0, 0.5, 1] },
    }).withProvenance({
      modelInput: [
        { type: "prompt", sequenceId: "seq-a", offset: 0, length: 2 },
        { type: "sampled", sequenceId: "seq-b", offset: 5, length: 1 },
      ],
      lossFnInputs: [
        { type: "prompt", sequenceId: "seq-a", offset: 0, length: 2 },
        { type: "sampled", sequenceId: "seq-b", offset: 5, length: 1 },
      ],
    }),
    new Datum({
      modelInput: [
        { type: "encoded_text", tokens: [7] },
        {
          type: "image",
          data: Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0, 0xff),
          format: "png",
          expectedTokens: 300,
        },
        { type: "image", data: new TextEncoder().encode("jpeg"), format: "jpeg" },
        { type: "dmel", dmel: Uint8Array.of(2, 2, 5, 80, 0, 1, 2) },
        { type: "encoded_text", tokens: [] },
      ],
      lossFnInputs: {
        advantages: [
          [1.5, -2.25],
          [0.1, 3e38],
        ],
        targetTokens: [
          [0, 9, 0, 0, 0],
          [0, 0, 0, 0, 7],
        ],
      },
    }),
    new Datum({ modelInput: { chunks: [] }, lossFnInputs: { weights: [] } }),
  ],
};

describe("against the Python package", () => {
  it("declares the same messages and enums", () => {
    const rowsOf = (message: DescriptorProto): unknown => ({
      fields: Object.fromEntries(
        message.field.map((field) => [
          field.name,
          [field.number, field.type, field.label, field.typeName, field.proto3Optional],
        ]),
      ),
      nested: Object.fromEntries(message.nestedType.map((nested) => [nested.name, rowsOf(nested)])),
    });
    const file = file_tinker_public.proto;
    expect({
      messages: Object.fromEntries(file.messageType.map((message) => [message.name, rowsOf(message)])),
      enums: Object.fromEntries(
        file.enumType.map((item) => [
          item.name,
          Object.fromEntries(item.value.map((value) => [value.name, value.number])),
        ]),
      ),
    }).toEqual(readJson("descriptor.json"));
  });

  it("writes a ForwardBackwardRequest byte for byte", () => {
    expect(encodeForwardBackwardRequest(request)).toEqual(readBytes("forward-backward-request.bin"));
  });

  it("reads a ForwardBackwardRequest", () => {
    const read = decodeForwardBackwardRequest(readBytes("forward-backward-request.bin"));
    expect(plain(read)).toEqual(plain(request));
    expect(read.data[0]!.lossFnInputs["targetTokens"]!.data).toBeInstanceOf(Float64Array);
    expect(read.data[1]!.lossFnInputs["targetTokens"]!.isSparse).toBe(true);
  });

  it("reads a ForwardBackwardOutput with every dtype and several records", () => {
    const bytes = readBytes("forward-backward-output.bin");
    const expected = readJson("forward-backward-output.json");
    for (const record of expected.lossFnOutputs) {
      record.elementwiseLoss = record.elementwise_loss;
      delete record.elementwise_loss;
    }
    const output = decodeForwardBackwardOutput(bytes);
    expect(plain(output)).toEqual(expected);
    expect(plain(decodeForwardBackwardOutput(encodeForwardBackwardOutput(output)))).toEqual(expected);
  });

  it("reads and writes a SampleResponse", () => {
    const bytes = readBytes("sample-response.bin");
    const response = decodeSampleResponse(bytes);
    const { sequences, ...rest } = plain(response) as { sequences: Record<string, unknown>[] };
    const expected = readJson("sample-response.json");
    expect(sequences.map(({ sequenceId, ...sequence }) => sequence)).toEqual(expected.sequences);
    expect(rest).toEqual({ ...expected, sequences: undefined });
    expect(sequences.map((sequence) => sequence["sequenceId"])).toEqual([null, null]);
    expect(encodeSampleResponse(response)).toEqual(bytes);
  });

  it("reads the length of dmel containers", () => {
    for (const [bytes, length] of readJson("dmel-lengths.json") as [number[], number][]) {
      expect(chunkLength({ type: "dmel", dmel: Uint8Array.from(bytes) })).toBe(length);
    }
  });

  it("compresses matrices as torch does, and only where it saves space", () => {
    const cases = readJson("sparse.json") as { dense: number[][]; tensor: unknown }[];
    expect(cases.length).toBe(5);
    for (const { dense, tensor } of cases) {
      const sparse = TensorData.sparse(dense, { dtype: "int64" });
      expect(plain(sparse)).toEqual(tensor);
      expect(sparse.toNested()).toEqual(dense);
    }
  });

  it("writes JSON requests with the same names and values", () => {
    const expected = readJson("requests.json");
    const sample = endpoints.sample.request.read(expected.sample, "");
    expect(encodeRequest(endpoints.sample, sample).json).toEqual(expected.sample);
    expect(adamParams.write(adamParams.check({}, ""))).toEqual(expected.optimStep.adam_params);
    expect(loraConfig.write(loraConfig.check({ rank: 16 }, ""))).toEqual(expected.loraConfig);
  });
});

describe("the request writer", () => {
  it("agrees with the generic writer on a message with nothing set", () => {
    const empty = { modelId: "", seqId: 0, data: [], lossFn: "", forwardOnly: false };
    const generic = toBinary(ForwardBackwardRequestSchema, create(ForwardBackwardRequestSchema, {}));
    expect(encodeForwardBackwardRequest(empty)).toEqual(generic);
  });
});
