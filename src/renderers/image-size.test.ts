import { describe, expect, it } from "vitest";
import { qwenImageTokens, readImage } from "./image-size.js";

/** A JPEG file with a comment, a Huffman table and the beginning of a progressive frame: 30 by 20 pixels. */
const JPEG = Uint8Array.from([
  ...[0xff, 0xd8, 0xff, 0xfe, 0, 4, 1, 2, 0xff, 0xc4, 0, 3, 9],
  ...[0xff, 0xff, 0xc2, 0, 17, 8, 0, 20, 0, 30, 3, 1, 0x22, 0],
]);
/** One pixel. */
const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

describe("readImage", () => {
  it("reads the size of a PNG file, from a data: URI too", () => {
    const image = readImage({ type: "image", image: `data:image/png;base64,${PNG}` });
    expect(image).toMatchObject({ format: "png", width: 1, height: 1 });
    expect(readImage({ type: "image", image: image.data, format: "png" })).toEqual(image);
  });

  it("finds the frame of a JPEG file behind its other segments, wherever the bytes lie", () => {
    const within = new Uint8Array(JPEG.length + 3);
    within.set(JPEG, 3);
    expect(readImage({ type: "image", image: within.subarray(3) })).toMatchObject({
      format: "jpeg",
      width: 30,
      height: 20,
    });
  });

  it.each([
    ["https://example.com/a.png", "fetch it first"],
    ["/home/a.png", "must be bytes or a data: URI"],
    ["data:image/png;base64,§", "base64 cannot be read"],
    ["data:image/gif;base64,R0lGODlhAQABAAAAACw=", "must be a PNG or JPEG file"],
    [new Uint8Array(0), "must be a PNG or JPEG file"],
    [JPEG.subarray(0, 13), "ends before its size"],
    [JPEG.with(20, 0), "has no pixels"],
  ])("refuses %s", (image, why) => {
    expect(() => readImage({ type: "image", image })).toThrow(why);
  });

  it("refuses a format that the bytes contradict", () => {
    expect(() => readImage({ type: "image", image: JPEG, format: "png" })).toThrow(
      "said to be png and is jpeg",
    );
  });
});

describe("qwenImageTokens", () => {
  // As transformers' Qwen2VLImageProcessor counts with patches of 16, merged 2 by 2, between 256² and 4096² pixels.
  it.each([
    [640, 480, 300],
    [336, 336, 100],
    [1, 1, 64],
    [250, 4000, 1000],
    [2000, 10, 114],
    [4096, 4096, 16384],
    [9000, 7000, 16240],
  ])("makes of %i by %i pixels %i tokens", (width, height, tokens) => {
    expect(qwenImageTokens({ width, height })).toBe(tokens);
  });

  it("refuses an image that is a line", () => {
    expect(() => qwenImageTokens({ width: 2010, height: 10 })).toThrow("200 to 1");
  });
});
