import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { SampleResponseSchema, type StopReason } from "../gen/tinker_public_pb.js";
import { packWords } from "../tensors/packed.js";
import { TensorData } from "../tensors/tensor-data.js";
import { decodeSampleResponse, encodeSampleResponse } from "./sample-response-proto.js";
import type { SampleResponse } from "./sampling-types.js";

const encode = (init: MessageInitShape<typeof SampleResponseSchema>) => {
  return toBinary(SampleResponseSchema, create(SampleResponseSchema, init));
};

const nothing: Omit<SampleResponse, "sequences"> = {
  promptLogprobs: null,
  topkPromptLogprobs: null,
  targetPromptLogprobs: null,
  promptCacheHitTokens: 0,
  promptAltTokens: null,
};

describe("SampleResponse", () => {
  it("comes back as it was written", () => {
    const response: SampleResponse = {
      sequences: [
        {
          stopReason: "length",
          sequenceId: null,
          tokens: Int32Array.of(1, 2),
          logprobs: Float32Array.of(-1, -0.5),
          topkLogprobs: [[[1, -1]], null],
        },
        { stopReason: "stop", sequenceId: null, tokens: Int32Array.of(), logprobs: null, topkLogprobs: null },
      ],
      promptLogprobs: [null, -0.25],
      topkPromptLogprobs: [
        null,
        [
          [0, -0.5],
          [7, -1.5],
        ],
      ],
      targetPromptLogprobs: TensorData.from([[-1.5, 0]]),
      promptCacheHitTokens: 12,
      promptAltTokens: { tokens: TensorData.from([[3]]), logprobs: TensorData.from([[-2.5]]) },
    };
    expect(decodeSampleResponse(encodeSampleResponse(response))).toEqual(response);
  });

  it("is mostly null where nothing was asked for", () => {
    expect(decodeSampleResponse(new Uint8Array(0))).toEqual({ sequences: [], ...nothing });
    expect(
      decodeSampleResponse(encode({ promptLogprobs: new Uint8Array(0), topkPromptLogprobs: {} })),
    ).toEqual({ sequences: [], ...nothing });
  });

  it("tells a token 0 from an empty cell, and cuts empty cells at the end of a row alone", () => {
    const cells = {
      k: 3,
      length: 2,
      tokenIds: packWords(Int32Array.of(0, 5, 0, 4, 0, 6)),
      logprobs: packWords(Float32Array.of(-1, -2, -99999, -1, -99999, -3)),
    };
    expect(decodeSampleResponse(encode({ topkPromptLogprobs: cells })).topkPromptLogprobs).toEqual([
      [
        [0, -1],
        [5, -2],
      ],
      [
        [4, -1],
        [0, -99999],
        [6, -3],
      ],
    ]);
  });

  it("keeps an unknown stop reason", () => {
    const [sequence] = decodeSampleResponse(
      encode({ sequences: [{ stopReason: 7 as StopReason }] }),
    ).sequences;
    expect(sequence?.stopReason).toBe("stop_reason_7");
  });

  it.each<[string, MessageInitShape<typeof SampleResponseSchema>, string]>([
    ["cut tokens", { sequences: [{ tokens: new Uint8Array(5) }] }, "5 bytes are not a list of int32 values"],
    [
      "cut logprobs",
      { sequences: [{ logprobs: new Uint8Array(5) }] },
      "5 bytes are not a list of float32 values",
    ],
    [
      "top-k cells missing",
      { topkPromptLogprobs: { k: 2, length: 2, tokenIds: new Uint8Array(16), logprobs: new Uint8Array(8) } },
      "top-k logprobs of 2 x 2 have 4 tokens, 2 logprobs",
    ],
  ])("with %s is the server's fault", (_, init, message) => {
    expect(() => decodeSampleResponse(encode(init))).toThrow(
      `The server's SampleResponse cannot be read: ${message}`,
    );
  });
});
