import { describe, expect, it } from "vitest";
import { TinkerError, ValidationError } from "../../errors.js";
import { bytesToBase64 } from "../base64.js";
import { chunkLength, ModelInput, type ModelInputChunkLike } from "./model-input.js";

describe("ModelInput", () => {
  it("takes tokens in every form and returns them", () => {
    const tokens = [0, 5, 2_147_483_647];
    const forms = [
      tokens,
      Int32Array.from(tokens),
      Uint32Array.from(tokens),
      Float64Array.from(tokens),
      BigInt64Array.from(tokens, BigInt),
      BigUint64Array.from(tokens, BigInt),
    ];
    for (const form of forms) {
      expect(ModelInput.fromInts(form).toInts()).toEqual(tokens);
      expect(ModelInput.from(form).toInts()).toEqual(tokens);
    }
  });

  it("takes an Int32Array without copying it", () => {
    const tokens = Int32Array.of(1, 2);
    const [chunk] = ModelInput.fromInts(tokens).chunks;
    expect(chunk).toEqual({ type: "encoded_text", tokens });
    expect(chunk?.type === "encoded_text" && chunk.tokens === tokens).toBe(true);
  });

  it.each([
    ["NaN", [1, Number.NaN], "tokens[1] must be a token id (an integer from 0 to 2147483647), got NaN"],
    ["negative", [-1], "tokens[0] must be a token id"],
    ["negative, typed", Int32Array.of(3, -7), "tokens[1] must be a token id"],
    ["a fraction", [1.5], "got 1.5"],
    ["too large", [2 ** 31], "got 2147483648"],
    ["too large, unsigned", Uint32Array.of(2 ** 31), "got 2147483648"],
    ["a text", ["7"] as unknown as number[], 'got "7"'],
    ["a hole", [1, undefined] as number[], "tokens[1] must be a token id"],
    ["bigint too large", BigInt64Array.of(2n ** 40n), "got 1099511627776n"],
  ])("refuses %s as a token", (_, tokens, message) => {
    expect(() => ModelInput.fromInts(tokens)).toThrow(message);
    expect(() => ModelInput.fromInts(tokens)).toThrow(ValidationError);
  });

  it("adds one token to the last text chunk and leaves the first input as it was", () => {
    const first = ModelInput.fromInts([1]);
    const second = first.appendInt(2);
    expect(second.chunks).toHaveLength(1);
    expect(second.toInts()).toEqual([1, 2]);
    expect(first.toInts()).toEqual([1]);
    expect(ModelInput.empty().appendInt(9).toInts()).toEqual([9]);
    const afterImage = second.append({
      type: "image",
      data: Uint8Array.of(1),
      format: "png",
      expectedTokens: 4,
    });
    expect(afterImage.appendInt(3).chunks.map((chunk) => chunk.type)).toEqual([
      "encoded_text",
      "image",
      "encoded_text",
    ]);
    expect(afterImage.appendInt(3).length).toBe(7);
  });

  it("counts text, images and audio", () => {
    expect(ModelInput.empty().length).toBe(0);
    const input = ModelInput.from([
      { type: "encoded_text", tokens: [1, 2, 3] },
      { type: "image_asset_pointer", format: "jpeg", location: "a.jpg", expectedTokens: 10 },
      { type: "dmel", dmel: Uint8Array.of(254, 2, 1, 20) },
    ]);
    expect(input.length).toBe(33);
    expect(input.isText).toBe(false);
  });

  it("says what is missing where a length or a list of tokens cannot be had", () => {
    const image = ModelInput.from([{ type: "image", data: Uint8Array.of(1), format: "png" }]);
    expect(() => image.length).toThrow("unknown without its expectedTokens");
    expect(() => image.toInts()).toThrow("chunk 0 is of type image");
  });

  it("takes bytes as base64 and foreign instances by their chunks", () => {
    const data = Uint8Array.of(1, 2, 250);
    const input = ModelInput.from({ chunks: [{ type: "image", data: bytesToBase64(data), format: "jpeg" }] });
    expect(input.chunks[0]).toEqual({ type: "image", data, format: "jpeg" });
    expect(ModelInput.from(input)).toBe(input);
  });

  it.each<[string, unknown, string]>([
    ["unknown type", { type: "video" }, "modelInput[0].type must be one of encoded_text, image"],
    ["type of Object's own", { type: "toString" }, "modelInput[0].type must be one of"],
    [
      "snake_case field",
      { type: "image", data: "", format: "png", expected_tokens: 1 },
      "unknown field modelInput[0].expected_tokens; did you mean expectedTokens?",
    ],
    [
      "format",
      { type: "image", data: "", format: "gif" },
      'modelInput[0].format must be "png" or "jpeg", got "gif"',
    ],
    ["base64", { type: "dmel", dmel: "a" }, "modelInput[0].dmel is not base64"],
    [
      "location",
      { type: "image_asset_pointer", format: "png", location: "" },
      "modelInput[0].location must be a non-empty string",
    ],
    [
      "expectedTokens",
      { type: "image", data: "", format: "png", expectedTokens: -1 },
      "modelInput[0].expectedTokens must be a non-negative integer, got -1",
    ],
    ["bytes", { type: "dmel", dmel: 5 }, "modelInput[0].dmel must be a Uint8Array or base64 text, got 5"],
    ["null", null, "modelInput[0] must be an object, got null"],
  ])("refuses a chunk with a wrong %s", (_, chunk, message) => {
    expect(() => ModelInput.from([chunk as ModelInputChunkLike])).toThrow(message);
  });

  it("refuses values that are not inputs", () => {
    expect(() => ModelInput.from("text" as unknown as number[])).toThrow(
      'modelInput must be tokens, got the text "text": encode it with the model\'s tokenizer first',
    );
    expect(() => ModelInput.from(7 as unknown as number[])).toThrow(
      "modelInput must be a ModelInput, tokens or a list of chunks, got 7",
    );
    expect(() => ModelInput.from({ chunks: 5 } as never)).toThrow("modelInput.chunks must be");
    expect(() => ModelInput.from(undefined as never, "data[3].modelInput")).toThrow(
      "data[3].modelInput must be",
    );
  });
});

describe("dmel containers", () => {
  it.each<[string, number[], string]>([
    ["empty", [], "ends within its header"],
    ["a marker alone", [254], "ends within its header"],
    ["an unknown dtype", [8, 1, 5], "unknown dtype byte 8"],
    ["a cut varint", [0, 1, 0x80], "ends within its header"],
    ["an endless varint", [0, 1, ...Array<number>(12).fill(0x80)], "too large"],
    ["no dimensions", [0, 0], "without dimensions"],
    ["absurdly many dimensions", [0, 0xff, 0xff, 0xff, 0x7f], "claims 268435455 dimensions"],
  ])("that are %s are an error", (_, bytes, message) => {
    const measure = () => chunkLength({ type: "dmel", dmel: Uint8Array.from(bytes) });
    expect(measure).toThrow(message);
    expect(measure).toThrow(TinkerError);
  });
});
