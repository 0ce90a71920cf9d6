import type { RunMetrics } from "../../training/index.js";
import type { TrainingLogger } from "./logger.js";

/** Writes event files that TensorBoard shows: `tensorboard --logdir FOLDER`. A run that goes on adds a file. */
export function tensorBoardLogger(folder: string): TrainingLogger {
  let opening: ReturnType<typeof openEventFile> | undefined;
  let last: Promise<unknown> = Promise.resolve();
  const write = (event: Uint8Array): Promise<void> => {
    opening ??= openEventFile(folder);
    const writing = last.then(async () => (await opening!).appendFile(framed(event)));
    last = writing.catch(() => {});
    return writing;
  };
  return {
    config: (config) => write(encodeEvent({ texts: { config: markdown(config) }, step: 0 })),
    metrics: async (metrics, step) => {
      const scalars = Object.entries(metrics).filter(
        (entry): entry is [string, number] => typeof entry[1] === "number",
      );
      if (scalars.length > 0) await write(encodeEvent({ scalars: Object.fromEntries(scalars), step }));
    },
    close: async () => {
      await last;
      await (await opening?.catch(() => undefined))?.close();
    },
  };
}

async function openEventFile(folder: string) {
  const { createEventFile } = await import("./event-file.node.js");
  const file = await createEventFile(folder);
  await file.appendFile(framed(encodeEvent({ fileVersion: "brain.Event:2" })));
  return file;
}

function markdown(config: Readonly<Record<string, unknown>>): string {
  const rows = Object.entries(config).map(([name, value]) => `| ${name} | ${JSON.stringify(value)} |`);
  return ["| setting | value |", "|---|---|", ...rows].join("\n");
}

interface EventContent {
  readonly fileVersion?: string;
  readonly step?: number;
  readonly scalars?: Pick<RunMetrics, string>;
  readonly texts?: Readonly<Record<string, string>>;
}

/** tensorflow.Event: wall_time 1, step 2, file_version 3, summary 5. */
function encodeEvent({ fileVersion, step, scalars = {}, texts = {} }: EventContent): Uint8Array {
  const values = [
    ...Object.entries(scalars).map(([tag, value]) => [
      ...bytesField(1, utf8(tag)),
      ...fixedField(2, float32(value as number)),
    ]),
    ...Object.entries(texts).map(([tag, text]) => [
      ...bytesField(1, utf8(tag)),
      // TensorProto: dtype 1 = DT_STRING, shape 2 with one dimension, string_val 8.
      ...bytesField(8, [
        ...varintField(1, 7),
        ...bytesField(2, bytesField(2, varintField(1, 1))),
        ...bytesField(8, utf8(text)),
      ]),
      // SummaryMetadata: plugin_data 1 with plugin_name 1.
      ...bytesField(9, bytesField(1, bytesField(1, utf8("text")))),
    ]),
  ];
  return Uint8Array.from([
    ...fixedField(1, float64(Date.now() / 1000)),
    ...(step === undefined ? [] : varintField(2, step)),
    ...(fileVersion === undefined ? [] : bytesField(3, utf8(fileVersion))),
    ...(values.length === 0
      ? []
      : bytesField(
          5,
          values.flatMap((value) => bytesField(1, value)),
        )),
  ]);
}

const WIRE_TYPES = { varint: 0, fixed64: 1, bytes: 2, fixed32: 5 } as const;

function utf8(text: string): readonly number[] {
  return [...new TextEncoder().encode(text)];
}

function float32(value: number): readonly number[] {
  return [...new Uint8Array(Float32Array.of(value).buffer)];
}

function float64(value: number): readonly number[] {
  return [...new Uint8Array(Float64Array.of(value).buffer)];
}

function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80);
  bytes.push(rest);
  return bytes;
}

function varintField(field: number, value: number): number[] {
  return [(field << 3) | WIRE_TYPES.varint, ...varint(value)];
}

function bytesField(field: number, bytes: readonly number[]): number[] {
  return [(field << 3) | WIRE_TYPES.bytes, ...varint(bytes.length), ...bytes];
}

function fixedField(field: number, bytes: readonly number[]): number[] {
  const type = bytes.length === 4 ? WIRE_TYPES.fixed32 : WIRE_TYPES.fixed64;
  return [(field << 3) | type, ...bytes];
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

/** Checksums of data that hold checksums are weak, so the format turns and shifts them. */
function maskedCrc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ byte) & 0xff]!;
  crc = (crc ^ 0xffffffff) >>> 0;
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}
