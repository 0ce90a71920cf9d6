import { mkdir, open } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/** One event of a TensorBoard file. */
export interface EventContent {
  readonly fileVersion?: string;
  readonly step?: number;
  readonly scalars?: Readonly<Record<string, number>>;
  readonly texts?: Readonly<Record<string, string>>;
}

/** A TensorBoard file that is open for writing. */
export type EventFile = Awaited<ReturnType<typeof openEventFile>>;

/** Creates an event file in a folder, named so that TensorBoard finds it and no other process uses the same name. */
export async function openEventFile(folder: string) {
  await mkdir(folder, { recursive: true });
  const seconds = String(Math.floor(Date.now() / 1000)).padStart(10, "0");
  const name = `events.out.tfevents.${seconds}.${hostname()}.${process.pid}.${performance.now().toFixed(0)}`;
  const file = await open(join(folder, name), "wx");
  const write = (event: EventContent) => file.appendFile(framed(encodeEvent(event)));
  await write({ fileVersion: "brain.Event:2" });
  return { write, close: () => file.close() };
}

const { Varint, Bit32, Bit64, LengthDelimited } = WireType;

/** tensorflow.Event: wall_time 1, step 2, file_version 3, summary 5 with its values 1. */
function encodeEvent({ fileVersion, step, scalars = {}, texts = {} }: EventContent): Uint8Array {
  const event = new BinaryWriter().tag(1, Bit64).double(Date.now() / 1000);
  if (step !== undefined) event.tag(2, Varint).int64(step);
  if (fileVersion !== undefined) event.tag(3, LengthDelimited).string(fileVersion);
  const summary = new BinaryWriter();
  for (const [tag, value] of Object.entries(scalars)) {
    summary.tag(1, LengthDelimited).fork().tag(1, LengthDelimited).string(tag);
    summary.tag(2, Bit32).float(Math.fround(value)).join();
  }
  for (const [tag, text] of Object.entries(texts)) {
    summary.tag(1, LengthDelimited).fork().tag(1, LengthDelimited).string(tag);
    // TensorProto: dtype 1 = DT_STRING, shape 2 with one dimension, string_val 8.
    summary.tag(8, LengthDelimited).fork().tag(1, Varint).int32(7).tag(2, LengthDelimited).fork();
    summary.tag(2, LengthDelimited).fork().tag(1, Varint).int32(1).join().join();
    summary.tag(8, LengthDelimited).string(text).join();
    // SummaryMetadata: plugin_data 1 with plugin_name 1.
    summary.tag(9, LengthDelimited).fork().tag(1, LengthDelimited).fork();
    summary.tag(1, LengthDelimited).string("text").join().join().join();
  }
  const values = summary.finish();
  if (values.length > 0) event.tag(5, LengthDelimited).bytes(values);
  return event.finish();
}

/** A record of a TFRecord file: its length, the length's checksum, the data, their checksum. */
function framed(data: Uint8Array): Uint8Array {
  const record = new Uint8Array(data.length + 16);
  const view = new DataView(record.buffer);
  view.setBigUint64(0, BigInt(data.length), true);
  view.setUint32(8, maskedCrc32c(record.subarray(0, 8)), true);
  record.set(data, 12);
  view.setUint32(12 + data.length, maskedCrc32c(data), true);
  return record;
}

const CASTAGNOLI = 0x82f63b78;
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = (rest >>> 1) ^ (rest & 1 ? CASTAGNOLI : 0);
  return rest;
});

/** Checksums of data that contain checksums are weak, so the format rotates and offsets them. */
function maskedCrc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ byte) & 0xff]!;
  crc = (crc ^ 0xffffffff) >>> 0;
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}
