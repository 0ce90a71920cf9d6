import { Buffer } from "node:buffer";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { describe, expect, it } from "vitest";
import { ValidationError } from "../../errors.js";
import {
  type ChunkSchema,
  DType,
  ForwardBackwardRequestSchema,
  type ProvenanceSpanSchema,
} from "../gen/tinker_public_pb.js";
import { camelToSnake } from "../json-keys.js";
import { ModelInput, type ModelInputChunk, type ModelInputChunkLike } from "../sampling/model-input.js";
import { packWords } from "../tensors/packed.js";
import { TensorData } from "../tensors/tensor-data.js";
import { tensorToProto } from "../tensors/tensor-proto.js";
import { estimateDatumProtoBytes, estimateModelInputBytes } from "./byte-estimates.js";
import { Datum, type ProvenanceSpan } from "./datum.js";
import { decodeForwardBackwardRequest, peekRequest } from "./forward-backward-request-proto.js";
import { encodeForwardBackwardRequest } from "./forward-backward-request-writer.js";
import type { ForwardBackwardRequest } from "./training-types.js";

/** The same message through the generated code and the library's own writer. */
function encodeGenerically(request: ForwardBackwardRequest): Uint8Array {
  const config = Object.entries(request.lossFnConfig ?? {}).map(
    ([key, value]) => [camelToSnake(key), value] as const,
  );
  const message = create(ForwardBackwardRequestSchema, {
    modelId: request.modelId,
    seqId: request.seqId,
    lossFn: request.lossFn,
    forwardOnly: request.forwardOnly,
    lossFnConfig: Object.fromEntries(
      config.filter((entry): entry is [string, number] => typeof entry[1] === "number"),
    ),
    lossFnConfigV2: Object.fromEntries(
      config.map(([key, value]) => [
        key,
        {
          value:
            typeof value === "number" ? { case: "number" as const, value } : { case: "text" as const, value },
        },
      ]),
    ),
    data: request.data.map((datum) => ({
      modelInput: datum.modelInput.chunks.map(chunkMessage),
      lossFnInputs: Object.fromEntries(
        Object.entries(datum.lossFnInputs).map(([key, tensor]) => [camelToSnake(key), tensorToProto(tensor)]),
      ),
      modelInputSpans: (datum.modelInputSpans ?? []).map(spanMessage),
      lossFnInputSpans: (datum.lossFnInputSpans ?? []).map(spanMessage),
    })),
  });
  return toBinary(ForwardBackwardRequestSchema, message);
}

function chunkMessage(chunk: ModelInputChunk): MessageInitShape<typeof ChunkSchema> {
  if (chunk.type === "encoded_text")
    return { chunk: { case: "encodedText", value: { tokens: packWords(chunk.tokens) } } };
  if (chunk.type === "dmel") return { chunk: { case: "dmel", value: { dmel: chunk.dmel } } };
  if (chunk.type !== "image") throw new Error("not in protobuf");
  const { data, format, expectedTokens } = chunk;
  return {
    chunk: {
      case: "image",
      value: { data, format, ...(expectedTokens !== undefined && { expectedTokens }) },
    },
  };
}

function spanMessage(span: ProvenanceSpan): MessageInitShape<typeof ProvenanceSpanSchema> {
  const value = {
    sequenceId: span.sequenceId,
    offset: BigInt(span.offset ?? 0),
    length: BigInt(span.length),
  };
  return span.type === "prompt"
    ? { source: { case: "promptTokens", value } }
    : { source: { case: "sampledTokens", value } };
}

/** `toEqual` looks at one byte at a time, which is slow for long lists. */
const areSame = (left: Uint8Array, right: Uint8Array): boolean => Buffer.compare(left, right) === 0;

/** A small generator with a fixed seed, so that a failure can be repeated. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function randomRequest(seed: number): ForwardBackwardRequest {
  const random = randomFrom(seed);
  const list = <T>(length: number, make: () => T): T[] => Array.from({ length }, make);
  const bytes = (length: number) => Uint8Array.from(list(length, () => random(256)));
  const chunk = (): ModelInputChunkLike => {
    const kind = random(4);
    if (kind === 0) return { type: "image", data: bytes(random(400)), format: random(2) ? "png" : "jpeg" };
    if (kind === 1) return { type: "image", data: bytes(3), format: "png", expectedTokens: random(5000) };
    if (kind === 2) return { type: "dmel", dmel: bytes(random(3) * 100) };
    return { type: "encoded_text", tokens: list(random(60), () => random(2 ** 31)) };
  };
  const tensor = (): TensorData => {
    const rows = random(20);
    const columns = random(20);
    const kind = random(5);
    if (kind === 0) return TensorData.from(random(2 ** 31));
    if (kind === 1) return TensorData.from(Float32Array.from(list(rows, () => random(1000) / 7)));
    if (kind === 2)
      return TensorData.from(Float64Array.from(list(rows, () => random(2 ** 45) - 2 ** 40)), {
        dtype: "int64",
      });
    const cells = list(rows * columns, () => (random(8) === 0 ? random(2 ** 20) : 0));
    return TensorData.sparse({
      data: cells,
      dtype: kind === 3 ? "int64" : "float32",
      shape: [rows, columns],
    });
  };
  const span = (): ProvenanceSpan => {
    return {
      type: random(2) ? "prompt" : "sampled",
      sequenceId: `seq-${random(1e6)}`,
      offset: random(3) * 1000,
      length: random(400),
    };
  };
  return {
    modelId: ["", "session:train:0", "mödel"][random(3)]!,
    seqId: random(2) ? random(2 ** 31) : random(3),
    lossFn: "ppo",
    forwardOnly: random(2) === 1,
    lossFnConfig: Object.fromEntries(
      list(random(4), () => [`keyNo${random(99)}`, random(2) ? random(100) / 3 : ["täxt", ""][random(2)]!]),
    ),
    data: list(random(6), () =>
      Datum.received({
        modelInput: ModelInput.from({ chunks: list(random(4), chunk) }),
        lossFnInputs: Object.fromEntries(list(random(4), () => [`inputNo${"abc"[random(3)]}`, tensor()])),
        ...(random(3) === 0 && {
          modelInputSpans: list(1 + random(2), span),
          lossFnInputSpans: list(1 + random(2), span),
        }),
      }),
    ),
  };
}

const simple = (change: Partial<ForwardBackwardRequest> = {}): ForwardBackwardRequest => ({
  modelId: "m",
  seqId: 1,
  lossFn: "cross_entropy",
  forwardOnly: false,
  data: [new Datum({ modelInput: [1, 2], lossFnInputs: { targetTokens: [2, 3], weights: [0, 1] } })],
  ...change,
});

describe("encodeForwardBackwardRequest", () => {
  it("writes the same bytes as the generic writer, and they read back", () => {
    for (let seed = 0; seed < 120; seed++) {
      const request = randomRequest(seed);
      const bytes = encodeForwardBackwardRequest(request);
      expect(areSame(bytes, encodeGenerically(request)), `seed ${seed}`).toBe(true);
      const { lossFnConfig, ...rest } = decodeForwardBackwardRequest(bytes);
      const { lossFnConfig: sentConfig, ...sent } = request;
      expect(lossFnConfig ?? {}, `seed ${seed}`).toEqual(sentConfig);
      expect(rest, `seed ${seed}`).toEqual(sent);
    }
  });

  it("writes views into larger arrays", () => {
    const tokens = Int32Array.of(9, 1, 2, 9).subarray(1, 3);
    const weights = Float32Array.of(9, 0, 1, 9).subarray(1, 3);
    const request = simple({
      data: [new Datum({ modelInput: tokens, lossFnInputs: { targetTokens: Int32Array.of(2, 3), weights } })],
    });
    expect(encodeForwardBackwardRequest(request)).toEqual(encodeForwardBackwardRequest(simple()));
  });

  it("writes long lists, whose lengths take several bytes", () => {
    for (const length of [15, 16, 127, 128, 5000, 70_000]) {
      const tokens = Int32Array.from({ length }, (_, index) => index);
      const request = simple({
        data: [new Datum({ modelInput: tokens, lossFnInputs: { targetTokens: tokens } })],
      });
      expect(
        areSame(encodeForwardBackwardRequest(request), encodeGenerically(request)),
        `${length} tokens`,
      ).toBe(true);
    }
  });

  it("refuses what the message cannot carry, and says where", () => {
    const pointer: ModelInputChunkLike = {
      type: "image_asset_pointer",
      format: "png",
      location: "a",
      expectedTokens: 1,
    };
    const withPointer = simple({ data: [...simple().data, new Datum({ modelInput: [pointer] })] });
    expect(() => encodeForwardBackwardRequest(withPointer)).toThrow(
      "data[1].modelInput.chunks[0] is an image_asset_pointer",
    );
    for (const seqId of [-1, 1.5, 2 ** 31]) {
      expect(() => encodeForwardBackwardRequest(simple({ seqId }))).toThrow(
        `seqId must be an integer from 0 to 2147483647, got ${seqId}`,
      );
    }
  });

  it("takes about as many bytes as estimated", () => {
    const request = simple({ data: [simple().data[0]!] });
    // 2 tokens of 4 bytes, 2 int64 targets, 2 float32 weights.
    expect(estimateDatumProtoBytes(request.data[0]!)).toBe(8 + 16 + 8);
    const sparse = new Datum({
      modelInput: [1, 2],
      lossFnInputs: {
        targetTokens: [
          [0, 0, 0, 5],
          [0, 0, 0, 0],
        ],
      },
    });
    expect(estimateDatumProtoBytes(sparse)).toBe(8 + 8 + 8 * (3 + 1));
    const chunks: ModelInputChunkLike[] = [
      { type: "encoded_text", tokens: [1, 2, 3] },
      { type: "image", data: new Uint8Array(50), format: "png" },
      { type: "image_asset_pointer", location: "abcd", format: "png" },
      { type: "dmel", dmel: new Uint8Array(7) },
    ];
    expect(estimateModelInputBytes(ModelInput.from(chunks))).toBe(30 + 50 + 4 + 7);
    expect(estimateDatumProtoBytes(new Datum({ modelInput: chunks }))).toBe(12 + 50 + 4 + 7);
  });
});

describe("decodeForwardBackwardRequest", () => {
  const encode = (init: MessageInitShape<typeof ForwardBackwardRequestSchema>) => {
    return toBinary(ForwardBackwardRequestSchema, create(ForwardBackwardRequestSchema, init));
  };

  it("prefers the newer config and falls back to the older one", () => {
    expect(
      decodeForwardBackwardRequest(encode({ lossFnConfig: { clip_low_threshold: 0.5 } })).lossFnConfig,
    ).toEqual({
      clipLowThreshold: 0.5,
    });
    const both = encode({
      lossFnConfig: { a: 1 },
      lossFnConfigV2: { b: { value: { case: "text", value: "x" } } },
    });
    expect(decodeForwardBackwardRequest(both).lossFnConfig).toEqual({ b: "x" });
  });

  it("does not keep the request's bytes alive through its parts", () => {
    const bytes = encodeForwardBackwardRequest(
      simple({
        data: [new Datum({ modelInput: [{ type: "image", data: Uint8Array.of(1, 2), format: "png" }] })],
      }),
    );
    const [chunk] = decodeForwardBackwardRequest(bytes).data[0]!.modelInput.chunks;
    expect(chunk?.type === "image" && chunk.data.buffer.byteLength).toBe(2);
  });

  it.each<[string, Uint8Array, string]>([
    ["garbage", Uint8Array.of(1, 2, 3), "cannot be read"],
    ["a cut message", encodeForwardBackwardRequest(simple()).slice(0, -30), "cannot be read"],
    [
      "negative tokens",
      encode({
        data: [
          {
            modelInput: [{ chunk: { case: "encodedText", value: { tokens: packWords(Int32Array.of(-1)) } } }],
          },
        ],
      }),
      "data[0].modelInput.chunks[0].tokens[0] must be a token id",
    ],
    [
      "an empty chunk",
      encode({ data: [{}, { modelInput: [{}] }] }),
      "data[1].modelInput.chunks[0] is a chunk of an unknown kind",
    ],
    [
      "a tensor without dtype",
      encode({ data: [{ lossFnInputs: { weights: {} } }] }),
      "unknown tensor dtype 0",
    ],
    [
      "a tensor that does not fill its shape",
      encode({
        data: [
          {
            lossFnInputs: {
              weights: {
                dtype: DType.DTYPE_FLOAT32,
                shape: [3n],
                layout: { case: "dense", value: new Uint8Array(8) },
              },
            },
          },
        ],
      }),
      "data[0].lossFnInputs.weights has 2 values, which do not fill the shape [3]",
    ],
  ])("refuses %s", (_, bytes, message) => {
    expect(() => decodeForwardBackwardRequest(bytes)).toThrow(message);
    expect(() => decodeForwardBackwardRequest(bytes)).toThrow(ValidationError);
  });

  /** A field that is a message, a text or a packed list. */
  const part = (field: number, content: Uint8Array) =>
    new BinaryWriter().tag(field, WireType.LengthDelimited).bytes(content).finish();
  const times = (count: number, bytes: Uint8Array) => Buffer.alloc(count * bytes.length, bytes);
  const empty = new Uint8Array(0);
  const datum = (content: Uint8Array) => part(3, content);
  const tensor = (content: Uint8Array) => datum(part(2, part(2, content)));
  const nested = (count: number, ...fields: number[]) =>
    fields.reduceRight<Uint8Array>((content, field) => part(field, content), times(count, part(1, empty)));

  it.each([
    ["datums", times(4097, datum(empty)), "data: one request holds at most 4096;"],
    [
      "chunks of all datums",
      times(17, datum(times(2000, part(1, empty)))),
      "data.modelInput: one request holds at most 32768;",
    ],
    [
      "chunks of one datum",
      datum(times(10_000, part(1, empty))),
      "data.modelInput: one element holds at most 8192",
    ],
    [
      "values of one choice",
      datum(part(1, times(10_000, part(1, empty)))),
      "data.modelInput.encodedText: one element",
    ],
    ["tokens", nested(10_000, 3, 1, 1), "data.modelInput.encodedText.tokens: one element"],
    ["tensors of one datum", datum(times(10_000, part(2, empty))), "data.lossFnInputs: one element"],
    [
      "tensors of all datums",
      times(4096, datum(times(9, part(2, part(2, empty))))),
      "data.lossFnInputs.value: one request holds at most 32768;",
    ],
    [
      "sizes in a packed list",
      tensor(part(4, new Uint8Array(10_000))),
      "data.lossFnInputs.value.shape: one element",
    ],
    [
      "sizes one by one",
      tensor(times(10_000, Uint8Array.of(32, 1))),
      "data.lossFnInputs.value.shape: one element",
    ],
    [
      "sparse values",
      tensor(part(2, times(10_000, part(2, empty)))),
      "data.lossFnInputs.value.sparseCsr.crowIndices: one element",
    ],
    ["spans of inputs", datum(times(10_000, part(3, empty))), "data.modelInputSpans: one element"],
    [
      "spans of targets",
      datum(times(10_000, part(4, part(1, empty)))),
      "data.lossFnInputSpans.promptTokens: one element",
    ],
    [
      "images",
      datum(part(1, part(2, times(10_000, part(4, empty))))),
      "data.modelInput.image.overrideDimensions: one element",
    ],
    ["settings", times(65, part(5, empty)), "lossFnConfig: one request holds at most 64;"],
    ["newer settings", times(65, part(7, empty)), "lossFnConfigV2: one request holds at most 64;"],
    ["names of models", times(300_000, part(1, empty)), "modelId: one request holds at most 262144 fields"],
    [
      "fields nobody knows",
      times(300_000, Uint8Array.of(120, 1)),
      "field 15: one request holds at most 262144 fields",
    ],
    ["letters of a name", part(1, new Uint8Array(5000)), "modelId has 5000 bytes; at most 4096"],
    [
      "letters of an input",
      datum(part(2, part(1, new Uint8Array(5000)))),
      "data.lossFnInputs.key has 5000 bytes",
    ],
    // What the decoder would read in another way than it was counted.
    ["a group", Uint8Array.of(123, 8, 1, 124), "field 15 is not part of a ForwardBackwardRequest"],
    [
      "a third field of an entry",
      part(5, part(3, part(1, empty))),
      "is not part of a ForwardBackwardRequest.lossFnConfig",
    ],
    ["a number in place of a message", Uint8Array.of(24, 1), "data has the wire type 0, expected 2"],
    ["a text in place of a number", part(2, empty), "seqId has the wire type 2, expected 0"],
    [
      "a part beyond its whole",
      Uint8Array.of(26, 2, 10, 9),
      "data.modelInput is longer than what it is part of",
    ],
  ])("refuses %s before anything is made of them", (_, bytes, message) => {
    expect(() => decodeForwardBackwardRequest(bytes)).toThrow(message);
    expect(() => decodeForwardBackwardRequest(bytes)).toThrow(ValidationError);
  });

  it("skips the fields of a newer message", () => {
    const newer = Buffer.concat([
      encodeForwardBackwardRequest(simple()),
      part(15, Uint8Array.of(1)),
      Uint8Array.of(128, 1, 5),
    ]);
    expect(decodeForwardBackwardRequest(newer)).toEqual(
      decodeForwardBackwardRequest(encodeForwardBackwardRequest(simple())),
    );
  });
});

describe("peekRequest", () => {
  const fields = (count: number) => Buffer.alloc(2 * count, Uint8Array.of(0x1a, 0));
  const named = Buffer.from([0x0a, 1, 0x6d, 0x10, 7]);

  it("finds the model and the number, also behind all datums of a request", () => {
    const found = { modelId: "m", seqId: 7 };
    expect(peekRequest(Buffer.concat([named, fields(2)]))).toEqual(found);
    expect(peekRequest(Buffer.concat([fields(4096), named]))).toEqual(found);
  });

  it("does not look behind more fields than a request has, or at a model's name of any length", () => {
    expect(peekRequest(Buffer.concat([fields(1_000_000), named]))).toEqual({});
    const long = new BinaryWriter().uint32(0x0a).string("m".repeat(5000)).finish();
    expect(peekRequest(Buffer.concat([long, named.subarray(3)]))).toEqual({ seqId: 7 });
  });
});
