import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { decodeSafetensors, encodeSafetensors, toBfloat16, toFloat16 } from "./safetensors.js";
import { SafetensorsFile } from "./safetensors-file.node.js";

const folder = mkdtempSync(join(tmpdir(), "safetensors-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function file(header: unknown, data: Uint8Array): Uint8Array {
  const json = new TextEncoder().encode(JSON.stringify(header));
  const bytes = new Uint8Array(8 + json.length + data.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(json.length), true);
  bytes.set(json, 8);
  bytes.set(data, 8 + json.length);
  return bytes;
}

describe("safetensors", () => {
  it("reads back what it wrote, from memory and from a file, at odd offsets too", () => {
    const tensors = {
      b: { shape: [2, 3], data: Float32Array.of(1, -2, 3.5, 0, -0, 1e-40) },
      a: { shape: [1], data: Float32Array.of(Number.POSITIVE_INFINITY) },
      empty: { shape: [0, 4], data: new Float32Array(0) },
    };
    const bytes = encodeSafetensors(tensors, { metadata: { step: "3" } });
    const padded = new Uint8Array(bytes.length + 1);
    padded.set(bytes, 1);
    for (const source of [bytes, Buffer.from(bytes), padded.subarray(1)]) {
      const decoded = decodeSafetensors(source);
      expect({ ...decoded.tensors }).toEqual(tensors);
      expect(decoded.metadata).toEqual({ step: "3" });
    }
    const path = join(folder, "x.safetensors");
    writeFileSync(path, bytes);
    const opened = new SafetensorsFile(path);
    expect(opened.read("b")).toEqual(tensors.b);
    expect(() => opened.read("c")).toThrow("has no tensor c");
    opened.close();
  });

  it("widens f16, bf16 and f64", () => {
    const data = Uint8Array.of(0x00, 0x3c, 0x01, 0x00, 0x80, 0x3f, 0x20, 0xc0, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f);
    const { tensors } = decodeSafetensors(
      file(
        {
          half: { dtype: "F16", shape: [2], data_offsets: [0, 4] },
          brain: { dtype: "BF16", shape: [2], data_offsets: [4, 8] },
          double: { dtype: "F64", shape: [1], data_offsets: [8, 16] },
        },
        data,
      ),
    );
    expect([...tensors["half"]!.data]).toEqual([1, 2 ** -24]);
    expect([...tensors["brain"]!.data]).toEqual([1, -2.5]);
    expect([...tensors["double"]!.data]).toEqual([1.5]);
  });

  it("rounds to f16 to nearest even, and every f16 survives the way there and back", () => {
    const cases: [number, number][] = [
      [1, 0x3c00],
      [-2, 0xc000],
      [65504, 0x7bff],
      [65519, 0x7bff],
      [65520, 0x7c00],
      [2 ** -24, 1],
      [2 ** -25, 0],
      [1.5 * 2 ** -24, 2],
      [2 ** -14 - 2 ** -25, 0x0400],
      [1 + 2 ** -11, 0x3c00],
      [1 + 3 * 2 ** -11, 0x3c02],
      [-0, 0x8000],
      [Number.NEGATIVE_INFINITY, 0xfc00],
    ];
    const bits = new Uint16Array(toFloat16(Float32Array.from(cases, ([value]) => value)).buffer);
    expect([...bits]).toEqual(cases.map(([, expected]) => expected));
    const all = new Uint16Array(1 << 16).map((_, i) => i).filter((half) => (half & 0x7c00) !== 0x7c00);
    const header = { x: { dtype: "F16", shape: [all.length], data_offsets: [0, 2 * all.length] } };
    const { tensors } = decodeSafetensors(file(header, new Uint8Array(all.buffer)));
    expect(new Uint16Array(toFloat16(tensors["x"]!.data).buffer)).toEqual(all);
  });

  it("rounds to bf16 to nearest even, and keeps infinities and NaN", () => {
    const cases: [number, number][] = [
      [1, 0x3f80],
      [-2.5, 0xc020],
      [1 + 2 ** -8, 0x3f80],
      [1 + 3 * 2 ** -8, 0x3f82],
      [1 + 2 ** -8 + 2 ** -20, 0x3f81],
      [3.4e38, 0x7f80],
      [Number.NEGATIVE_INFINITY, 0xff80],
      [-0, 0x8000],
    ];
    const bits = new Uint16Array(toBfloat16(Float32Array.from(cases, ([value]) => value)).buffer);
    expect([...bits]).toEqual(cases.map(([, expected]) => expected));
    const { tensors } = decodeSafetensors(
      encodeSafetensors({ x: { shape: [2], data: Float32Array.of(Number.NaN, -2.5) } }, { dtype: "BF16" }),
    );
    expect([...tensors["x"]!.data]).toEqual([Number.NaN, -2.5]);
  });

  it.each([
    [new Uint8Array(3), /at least 8 bytes/],
    [Uint8Array.of(255, 255, 255, 255, 255, 255, 255, 127, 0), /header says it has/],
    [
      file({ x: { dtype: "F32", shape: [2], data_offsets: [0, 4] } }, new Uint8Array(8)),
      /8 bytes by its shape/,
    ],
    [
      file({ x: { dtype: "F32", shape: [2], data_offsets: [0, 8] } }, new Uint8Array(4)),
      /cut short: tensor x ends at byte \d+, the file has \d+/,
    ],
    [
      file({ x: { dtype: "F8", shape: [2], data_offsets: [0, 2] } }, new Uint8Array(2)),
      /dtype F8 is not supported/,
    ],
    [file({ x: { dtype: "F32", shape: [-1], data_offsets: [0, 4] } }, new Uint8Array(4)), /bad shape/],
  ])("refuses a broken file %#", (bytes, message) => {
    expect(() => decodeSafetensors(bytes)).toThrow(message);
  });

  it("refuses to write a tensor whose shape does not fit", () => {
    expect(() => encodeSafetensors({ x: { shape: [3], data: new Float32Array(2) } })).toThrow(
      "tensor x: shape [3] needs 3 values, got 2",
    );
  });
});
